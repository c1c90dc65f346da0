"""The finished runs of a comparison that has not ended: a folder each, as of a sweep's trials, to be read back from.

They lie in the folder of the comparison, whose own files take their place when all runs are there.

The folder of one trial: finished, stopped early, or made with files of the user's that have changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from safetensors.torch import load_file

from fedfair.fairness.reject_option import RejectOption
from fedfair.mechanisms.randomness import key
from fedfair.protocol.task import Task
from simulations.files.atomic_files import alone_in, refuse_unwritable, write_text
from simulations.files.file_seal import has_changed
from simulations.results.environment import own_programs, own_tables
from simulations.results.front_files import read_measured
from simulations.results.result import Result, Results
from simulations.results.result_folder import RUNS_SO_FAR, refuse_to_replace
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment, RunKey
from strategies.server.releases.threshold_search import Threshold


class Reached(NamedTuple):
    """Where a trial stood when it was stopped early, and what it had released by then."""

    percent: float
    value: float
    epsilon: float
    delta: float


def trial_name(experiment: Experiment) -> str:
    """Return a folder's name that tells an experiment from every other one."""
    number = key(json.dumps(experiment.identity(), sort_keys=True))
    return f"{experiment.dataset}-{experiment.strategy}-{experiment.seed}-{number:016x}"


def is_finished(folder: Path) -> bool:
    """Return whether a trial's folder holds its result, or the note that it was stopped early."""
    return RunFolder(folder).is_finished or stopped(folder) is not None


def refuse_changed(folder: Path, experiment: Experiment) -> None:
    """Raise `ValueError` if a finished trial in `folder` used another state of one of the user's files."""
    then = RunFolder(folder).environment
    programs, tables = then.get("own_files_sha256", {}), then.get("own_tables_sealed", {})
    changed = [name for name, now in own_programs(experiment).items() if programs.get(name, now) != now]
    changed += [name for name, table in own_tables(experiment).items() if has_changed(table, tables.get(name, ""))]
    if changed:
        raise ValueError(f"{changed[0]} has changed since {folder} was made: restore it, or take another folder")


def note_stopped(folder: Path, reached: Reached) -> None:
    """Note in a trial's folder that it was stopped early, and where it stood."""
    write_text(folder / "stopped.json", json.dumps(reached._asdict()))


def stopped(folder: Path) -> Reached | None:
    """Return where a trial was stopped early, or None."""
    note = folder / "stopped.json"
    return Reached(**json.loads(note.read_text(encoding="utf-8"))) if note.is_file() else None


_TASK = "task.json"  # written last: with it a run is complete
_FINAL = ("metrics.parquet", "summary.csv", "ledger.json", "model.safetensors")

Make = Callable[[Sequence[Experiment]], Iterable[tuple[int, Result]]]
"""Makes runs, and yields each with its place among those that were asked for."""


class KeptRuns:
    """The finished runs in a comparison's folder, of settings that `described` has; of none, with the folder None."""

    def __init__(self, folder: Path | None = None, described: Mapping[str, Any] | None = None) -> None:
        self.folder, self._described = folder, dict(described or {})

    def complete(self, planned: Sequence[Experiment], make: Make) -> Results:
        """Return the results in the order of `planned`: those that are kept, and the others as they are made and kept.

        Raises `ValueError` if a kept run used another state of one of the user's files.
        """
        results = {place: self._read(made) for place, made in enumerate(planned) if self.has(made)}
        missing = [place for place in range(len(planned)) if place not in results]
        for place, result in make([planned[place] for place in missing]):
            self._add(result)
            results[missing[place]] = result
        return Results(results[place] for place in range(len(planned)))

    def has(self, made: Experiment) -> bool:
        """Return whether a run is kept."""
        return self.folder is not None and (self._place(made) / _TASK).is_file()

    def are_done(self, planned: Sequence[Experiment]) -> bool:
        """Return whether the folder holds the finished comparison.

        Raises `ValueError` if it used another state of one of the user's files.
        """
        if self.folder is None or not all((self.folder / name).is_file() for name in _FINAL):
            return False
        for made in planned:
            refuse_changed(self.folder, made)
        return True

    def _place(self, made: Experiment) -> Path:
        """Return the folder of a run."""
        assert self.folder is not None
        return self.folder / RUNS_SO_FAR / trial_name(made)

    def _read(self, made: Experiment) -> Result:
        """Read a run back, but for the counts that other thresholds could be chosen from."""
        folder = self._place(made)
        refuse_changed(folder, made)
        data = Task.model_validate_json((folder / _TASK).read_text(encoding="utf-8")).data()
        saved = RunFolder(folder)
        metrics = saved.metrics.drop(columns=[*RunKey._fields])
        (described,) = saved.models.values()
        model = described.build(load_file(folder / "model.safetensors"))
        ledger = saved.ledgers[""].with_files({})  # without those of the run's own folder
        return Result(made, data, metrics, ledger, model, threshold=_threshold(folder, described.threshold),
                      front=read_measured(folder))

    def _add(self, result: Result) -> None:
        """Keep a run; what the folder is for is written with the first."""
        if self.folder is None:
            return
        if not (self.folder / "config.toml").is_file():
            write_text(self.folder / "config.toml", tomli_w.dumps(self._described))
        folder = result.save(self._place(result.experiment))
        write_text(folder / _TASK, result.task.text)


def _threshold(folder: Path, rule: RejectOption | None) -> Threshold | None:
    """Read back how a run decides."""
    if rule is None:
        return None
    (saved,) = json.loads((folder / "thresholds.json").read_text(encoding="utf-8")).values()
    return Threshold(rule, saved["demographic_parity_found"], saved["confidence"])


@contextmanager
def kept_runs(folder: Path | None, described: Mapping[str, Any]) -> Iterator[KeptRuns]:
    """Yield the kept runs of a folder that no other command may use meanwhile.

    Raises `FileExistsError` if the folder holds something else, `BlockingIOError` if another command uses it, and
    another `OSError` if it cannot be written.
    """
    if folder is None:
        yield KeptRuns()
        return
    refuse_unwritable(folder)
    with alone_in(folder):
        refuse_to_replace(folder, described)
        yield KeptRuns(folder, described)
