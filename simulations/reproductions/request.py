"""A request for a reproduction, and the runs that answer it.

The request says how much of it, on which device, and where its runs are kept. Runs are read back where they are kept,
made where they are not, a broken one from its checkpoint on.
"""

from __future__ import annotations

import shlex
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import tomli_w
from pydantic import BaseModel, ValidationError

from fedfair.accounting import Ledger
from fedfair.mechanisms.randomness import key
from fedfair.plugins.registry import unknown
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import Progress, run
from simulations.engines.stacked import Part, stacks
from simulations.files.atomic_files import alone_in, refuse_unwritable, write_text
from simulations.plans.compare import Ended, OnRound, as_they_end
from simulations.plans.kept_runs import RUNS, RunFile, run_key
from simulations.reproductions.frontier_choice import front_points
from simulations.results.result import Result
from simulations.results.result_folder import refuse_other
from simulations.settings.experiment import Experiment, SettingsError, in_words

_UNFINISHED = "unfinished"  # the folder, beside the runs, of the checkpoints of those that go on
_RULE_ROUNDS = 600  # of which a number of the clip rule is kept: figures show 60

Described = TypeVar("Described", bound=BaseModel)


class Request(NamedTuple):
    """How many `seeds` (the reproduction's own number if None), whether the `quick` version, which of its `datasets`
    (all if none is named), on which `device`, and the folder of kept `runs` (that of the page if None). Of the frontier
    also which of its `epsilons` (all if none is named).
    """

    seeds: int | None = None
    quick: bool = False
    datasets: tuple[str, ...] = ()
    device: str = "cpu"
    runs: Path | None = None
    epsilons: tuple[float, ...] = ()

    def begin(self, name: str, out: Path) -> Path:
        """Make `out` the folder of the reproduction `name`, by a config.toml that says so, and return the folder of its
        runs: `out` itself, unless one is named, which reproductions with the same runs can share.

        Raises `FileExistsError` if `out` holds something else, and another `OSError` if `out` or the folder of the runs
        cannot be written; then nothing is changed.
        """
        described, runs = {"reproduction": name}, self.runs or out
        refuse_other(out, described)
        refuse_unwritable(runs)
        write_text(out / "config.toml", tomli_w.dumps(described))
        return runs

    def of_configuration(self, name: str, file: Path, kind: type[Described],
                         seeds: Sequence[str] = ("seeds",)) -> Described:
        """Return what a configuration says of as much as is requested.

        Args:
            name: Name of the reproduction.
            file: Its configuration, in which a table `quick` has what the quick version changes.
            kind: What it describes.
            seeds: Its settings that are numbers of seeds.

        Raises:
            SettingsError: For values that are not allowed, such as a single seed where there must be a deviation.
        """
        config = tomllib.loads(file.read_text(encoding="utf-8"))
        smaller = config.pop("quick")
        asked = dict.fromkeys(seeds, self.seeds) if self.seeds else {}
        try:
            return kind(**{**config, **(smaller if self.quick else {}), **asked})
        except ValidationError as error:
            raise SettingsError(f"{name}: {in_words(error, kind.model_fields)}") from None

    def of_data(self, name: str, file: Path, kind: type[Described]) -> Described:
        """Return the same of a configuration with a table for each data set: `data` that are asked for, and `others`.

        Args:
            name: Name of the reproduction.
            file: Its configuration.
            kind: What it describes, with fields `data` and `others`.

        Raises:
            ValueError: For a data set that is not in it, and what `of_configuration` raises.
        """
        study = self.of_configuration(name, file, kind)
        known = dict(study)["data"]
        asked = self.among([*known])
        return study.model_copy(update={"data": {each: known[each] for each in asked},
                                        "others": tuple(each for each in known if each not in asked)})

    def among(self, datasets: Sequence[str]) -> tuple[str, ...]:
        """Return the requested data sets of a reproduction, in its order; raise `ValueError` for an unknown one."""
        for name in self.datasets:
            if name not in datasets:
                raise unknown("data set of the quick version" if self.quick else "data set", name, datasets)
        return tuple(name for name in datasets if name in self.datasets or not self.datasets)

    def among_epsilons(self, epsilons: Sequence[float]) -> tuple[float, ...]:
        """Return the requested epsilons of a reproduction, in its order; raise `ValueError` for an unknown one."""
        for epsilon in self.epsilons:
            if epsilon not in epsilons:
                raise unknown("epsilon", f"{epsilon:g}", [f"{known:g}" for known in epsilons])
        return tuple(epsilon for epsilon in epsilons if epsilon in self.epsilons or not self.epsilons)

    def title(self, title: str) -> str:
        """Return a page's title with what it is limited to before a colon: some data sets, the quick version."""
        subject, colon, rest = title.partition(":")
        limits = "".join(f", {name}" for name in (*self.datasets, *(f"epsilon {value:g}" for value in self.epsilons)))
        return f"{subject}{limits}{' (quick version)' if self.quick else ''}{colon}{rest}"

    def command(self, name: str, seeds: int | None) -> str:
        """Return the command that makes it again, with a number of seeds; None for the reproduction's own."""
        chosen = f" --datasets {shlex.quote(','.join(self.datasets))}" if self.datasets else ""
        chosen += f" --epsilons {','.join(f'{epsilon:g}' for epsilon in self.epsilons)}" if self.epsilons else ""
        number = "" if seeds is None else f" --seeds {seeds}"
        return (f"fedfair reproduce {name}{number}{' --quick' if self.quick else ''}{chosen} "
                f"--device {self.device} --out DIR")

    def left_out(self, quick: str) -> list[str]:
        """Return paragraphs that say what is left out; `quick` describes the reproduction's quick version."""
        return [*([f"This is the quick version. {quick}", ""] if self.quick else []),
                *([f"Of the data sets only {', '.join(self.datasets)}.", ""] if self.datasets else []),
                *([f"Of the epsilons only {', '.join(f'{epsilon:g}' for epsilon in self.epsilons)}.", ""]
                  if self.epsilons else [])]


EVERYTHING = Request()


class Kept(NamedTuple):
    """What is kept of a run: its metrics (see `simulations.results.result.Result`), those of the clip rule thinned out,
    and its ledger, with what was guaranteed in advance alone, unless there was a budget; of a front the figures of each
    point (`simulations.reproductions.frontier_choice.front_points`); and the seconds that it took, from its start or
    its last checkpoint on, if they were kept.
    """

    metrics: pd.DataFrame
    ledger: Ledger
    points: list[Any] | None = None
    seconds: float | None = None


def kept_runs(experiments: Sequence[Experiment], folder: Path, on_round: OnRound = lambda *_: None, jobs: int = 1
              ) -> list[Kept]:
    """Return every experiment's run, after running those that are not in `folder`, each once, `jobs` at a time.

    Each is added to the folder's `runs.parquet` when it ends, or, where writing thousands of runs takes longer than
    making one, some together; one that is broken off goes on from its last checkpoint. With several jobs each is a
    process with one thread. Raises `BlockingIOError` if another command adds runs to the folder, `ValueError` if the
    file is damaged, and what `simulations.engines.run.run` raises.
    """
    with alone_in(folder / RUNS):
        found = RunFile(folder / RUNS).complete(
            experiments, lambda missing: _made(missing, folder, on_round, jobs),
            lambda made: shutil.rmtree(_checkpoints(made, folder), ignore_errors=True))
        if (unfinished := folder / _UNFINISHED).exists() and not any(unfinished.iterdir()):
            unfinished.rmdir()
    return [Kept(columns["metrics"], Ledger.from_dict(columns["ledger"]), columns["points"], columns["seconds"])
            for columns in found]


def versions(folder: Path, experiments: Sequence[Experiment] | None = None) -> str:
    """Say which versions of the program made runs that are kept in a folder, by default all of them."""
    settings = None if experiments is None else [experiment.settings() for experiment in experiments]
    return RunFile(folder / RUNS).versions(settings)


def _made(missing: Sequence[Experiment], folder: Path, on_round: OnRound, jobs: int
          ) -> Iterator[tuple[int, dict[str, Any]]]:
    """Make runs, those together that stack; one that was broken off goes on by itself."""
    begun = [place for place, made in enumerate(missing) if _checkpoints(made, folder).exists()]
    new = [place for place in range(len(missing)) if place not in set(begun)]
    parts = [Part([new[place] for place in part.places], part.stack)
             for part in stacks([missing[place] for place in new], jobs)] + [Part([place]) for place in begun]
    return as_they_end(_columns, missing, missing, parts, on_round, jobs, partial(_alone, folder))


def _alone(folder: Path, experiment: Experiment, *, progress: Progress) -> Result:
    """Run one experiment, from its last checkpoint on."""
    return run(experiment, progress=progress,
               checkpoint=Checkpoint(_checkpoints(experiment, folder), experiment.settings()))


def _columns(experiment: Experiment, ended: Ended) -> dict[str, Any]:
    """Return what is kept of a run, by column of a `RunFile`."""
    result = ended.result
    # Events as they were known in advance are kilobytes, where those of bounds that follow noisy counts are megabytes.
    # A budget depends on what was spent, so with one all of them stay.
    in_advance = {} if result.ledger.budget else result.ledger.log.in_advance().to_dict()
    return {"metrics": _thinned(result.metrics), "ledger": {**result.ledger.to_dict(), **in_advance},
            "points": front_points(result.front) if result.front else None,
            "seconds": round(ended.seconds, 3)}


def _checkpoints(experiment: Experiment, folder: Path) -> Path:
    """Return the folder of a run's checkpoints while it goes on."""
    return folder / _UNFINISHED / f"{key(run_key(experiment.settings())):016x}"


def _thinned(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics, with every number of the clip rule (split "rule") in at most 600 of the rounds that report
    it, evenly spread, the first and the last among them: a rule that follows noisy counts reports all of its numbers
    every round.
    """
    rule = metrics[metrics["split"] == "rule"]
    place = rule.groupby("metric")["round"].rank("dense").astype(int) - 1
    last = place.groupby(rule["metric"]).transform("max").clip(lower=_RULE_ROUNDS - 1)
    left_out = place * (_RULE_ROUNDS - 1) // last == (place - 1) * (_RULE_ROUNDS - 1) // last
    return metrics.drop(index=left_out[left_out].index)
