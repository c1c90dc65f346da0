"""Finished runs that are kept, so that none is made twice: as rows of one file, or as a folder each.

`RunFile` is one parquet file, for thousands of runs of which figures and ledgers are enough: reproductions and curves.
A row is a run: its `settings` as JSON, its `metrics` (round, split, group, metric, value), and as JSON its `ledger` and
the `points` of a curve, those of them that it has; the `seconds` that it took; and the `version` of the program that
made it.

`RunFolders` has a folder for each run with its model: the runs of a comparison that has not ended, in the comparison's
folder, whose own files take their place when all runs are there. A sweep's trials have such folders too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
from safetensors.torch import load_file

from fedfair.fairness.reject_option import RejectOption
from fedfair.mechanisms.randomness import key
from fedfair.protocol.task import Task
from simulations.files.atomic_files import alone_in, in_json, in_place, refuse_unwritable, write_text
from simulations.files.file_seal import has_changed
from simulations.results.environment import own_programs, own_tables, program_version
from simulations.results.front_files import read_measured
from simulations.results.result import Result, Results
from simulations.results.result_folder import RUNS_SO_FAR, refuse_to_replace
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment, RunKey, identity_of
from strategies.server.releases.threshold_search import Threshold

RUNS = "runs.parquet"
"""The name of such a file in its folder."""

_METRIC = pa.struct([("round", pa.int64()), ("split", pa.string()), ("group", pa.string()), ("metric", pa.string()),
                     ("value", pa.float64())])
_COLUMNS = pa.schema([("settings", pa.string()), ("metrics", pa.list_(_METRIC)), ("ledger", pa.string()),
                      ("points", pa.string()), ("seconds", pa.float64()), ("version", pa.string())])
_LATER = ("seconds", "version")  # columns that older files do not have


class Described(Protocol):
    """A run that is planned: an experiment, or one that is measured at several values."""

    def settings(self) -> dict[str, Any]:
        """Return what tells it from other runs."""


def run_key(settings: Mapping[str, Any]) -> str:
    """Return the identity of a run (see `identity_of`), which may have settings besides an experiment's, as text."""
    return json.dumps(identity_of(json.loads(in_json(settings))), sort_keys=True)


class RunFile:
    """The runs of the file at `path`, or, if it is None, of memory alone.

    `begin` is called before the file is first written. One process at a time may add runs (see
    `simulations.files.atomic_files.alone_in`). Raises `ValueError` for a file that holds something else, and
    `OSError` if it cannot be read.
    """

    def __init__(self, path: Path | None, begin: Callable[[], None] = lambda: None) -> None:
        self.path, self._begin = path, begin
        self._rows: dict[str, pa.Table] = {}
        if path is not None and path.exists():
            table = _read(path)
            for place, settings in enumerate(table["settings"].to_pylist()):
                self._rows[run_key(json.loads(settings))] = table.slice(place, 1)

    def find(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is kept of the run with these settings, by column, or None if it is not there.

        Settings that did not exist when it was run must have their defaults.
        """
        row = self._rows.get(run_key(settings))
        if row is None:
            return None
        columns = {name: json.loads(row[name][0].as_py() or "null") for name in ("settings", "ledger", "points")}
        columns.update({name: row[name][0].as_py() for name in _LATER})
        return {**columns, "metrics": pa.Table.from_struct_array(row["metrics"].combine_chunks().flatten()).to_pandas()}

    def versions(self, of: Iterable[Mapping[str, Any]] | None = None) -> str:
        """Say which versions of the program made the runs with some settings, by default all of them."""
        rows = self._rows.values() if of is None else [self._rows[run_key(settings)] for settings in of]
        known = {row["version"][0].as_py() or "of a version that was not kept" for row in rows}
        return f"Runs of fedfair {' and '.join(sorted(known))}." if known else ""

    def add(self, settings: Mapping[str, Any], metrics: pd.DataFrame | None = None,
            ledger: Mapping[str, Any] | None = None, points: list[Any] | None = None) -> None:
        """Keep a run, in place of one with the same identity, and save the file.

        Raises `OSError` if it cannot be written; then the old one stays.
        """
        self.hold(settings, metrics, ledger, points)
        self.save()

    def hold(self, settings: Mapping[str, Any], metrics: pd.DataFrame | None = None,
             ledger: Mapping[str, Any] | None = None, points: list[Any] | None = None, seconds: float | None = None
             ) -> None:
        """Keep a run in memory, in place of one with the same identity, until `save`."""
        frame = None if metrics is None else metrics[_METRIC.names].to_dict("records")
        texts = [None if value is None else in_json(value) for value in (settings, ledger, points)]
        row = dict(zip(("settings", "ledger", "points"), texts, strict=True))
        self._rows[run_key(settings)] = pa.Table.from_pylist(
            [{**row, "metrics": frame, "seconds": seconds, "version": program_version()}], _COLUMNS)

    def complete(self, planned: Sequence[Described], make: Callable[[Any], Iterable[tuple[int, Mapping[str, Any]]]],
                 saved: Callable[[Any], None] = lambda _: None) -> list[dict[str, Any]]:
        """Return what `find` returns of planned runs, after `make` made those that are missing, each once.

        The file is saved as they end, at intervals of twenty times what writing it takes; `saved` is then called with
        each run that was added.

        Args:
            planned: Runs, experiments for example.
            make: Makes runs, and yields what `hold` takes of each, with its place among those that were asked for.
            saved: Called with each run that is in the file from now on.
        """
        named = {run_key(each.settings()): each for each in planned}
        missing = [each for name, each in named.items() if name not in self._rows]
        held: list[Described] = []
        again = time.monotonic()
        try:
            for place, columns in make(missing):
                self.hold(missing[place].settings(), **columns)
                held.append(missing[place])
                if (began := time.monotonic()) >= again:
                    self._save_held(held, saved)
                    again = time.monotonic() + 20 * (time.monotonic() - began)
        finally:
            self._save_held(held, saved)
        return [self.find(each.settings()) or {} for each in planned]

    def _save_held(self, held: list[Described], saved: Callable[[Any], None]) -> None:
        """Save the file if runs were added, and say so of each."""
        if held:
            self.save()
        for each in held:
            saved(each)
        held.clear()

    def save(self) -> None:
        """Write the file anew, and replace the old one as a whole.

        Raises `OSError` if it cannot be written; then the old one stays.
        """
        if self.path is None or not self._rows:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self._begin()
        with in_place(self.path) as new:
            rows = pa.concat_tables(self._rows[name] for name in sorted(self._rows))  # equal runs, equal files
            pq.write_table(rows.combine_chunks(), new, compression="zstd")


def _read(path: Path) -> pa.Table:
    """Return the rows of a file; see `RunFile` for what is raised."""
    try:
        table = pq.read_table(path)
        for name in set(_LATER) - set(table.column_names):
            table = table.append_column(name, pa.nulls(len(table), _COLUMNS.field(name).type))
        return table.select(_COLUMNS.names).cast(_COLUMNS)
    except (pa.ArrowInvalid, KeyError) as error:
        raise ValueError(f"{path} holds no runs that this version can read ({error}): restore it, or remove it to make "
                         "all runs again") from None


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


class RunFolders:
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
def kept_runs(folder: Path | None, described: Mapping[str, Any]) -> Iterator[RunFolders]:
    """Yield the kept runs of a folder that no other command may use meanwhile.

    Raises `FileExistsError` if the folder holds something else, `BlockingIOError` if another command uses it, and
    another `OSError` if it cannot be written.
    """
    if folder is None:
        yield RunFolders()
        return
    refuse_unwritable(folder)
    with alone_in(folder):
        refuse_to_replace(folder, described)
        yield RunFolders(folder, described)
