"""Runs that are kept: a run with the same settings is read back instead of run again, a broken one goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.mechanisms.randomness import key
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.engines.worker_processes import in_processes
from simulations.results.atomic_files import in_json, write_json
from simulations.settings.experiment import Experiment

OnRound = Callable[[int, int, str, int, int], None]
"""See `simulations.plans.compare.OnRound`."""


_RULE_ROUNDS = 600  # of which a number of the clip rule is kept: figures show 60


class Kept(NamedTuple):
    """What is kept of a run: its metrics (see `simulations.results.result.Result`), those of the clip rule thinned out,
    and its ledger, with what was guaranteed in advance alone, unless there was a budget.
    """

    metrics: pd.DataFrame
    ledger: Ledger


def kept_runs(experiments: Sequence[Experiment], folder: Path, on_round: OnRound = lambda *_: None, jobs: int = 1
              ) -> list[Kept]:
    """Every experiment's run, those that are not in `folder` after running them there, each once, `jobs` at a time.

    With several jobs each is a process with one thread of its own. Raises what `simulations.engines.run.run` raises.
    """
    planned = {_file(experiment, folder): experiment for experiment in experiments}
    missing = [experiment for experiment in planned.values() if not is_kept(experiment, folder)]
    if jobs > 1 and len(missing) > 1:
        for done, _ in enumerate(in_processes(partial(kept, folder=folder), missing, jobs)):
            on_round(done, len(missing), f"{jobs} runs at a time", 1, 1)
    runs = []
    for done, experiment in enumerate(experiments):
        label = f"{experiment.dataset}, {experiment.strategy}, seed {experiment.seed}"

        def progress(rounds: int, of: int, done: int = done, label: str = label) -> None:
            """Tell how far this run is."""
            on_round(done, len(experiments), label, rounds, of)

        runs.append(kept(experiment, folder, progress))
    return runs


def kept(experiment: Experiment, folder: Path, progress: Callable[[int, int], None] = lambda *_: None) -> Kept:
    """One experiment's run, from `folder` if it is there; else run, from its last checkpoint on, and written there,
    whole or not at all.
    """
    file = _file(experiment, folder)
    broken = file.with_suffix("")
    if not is_kept(experiment, folder):
        result = run(experiment, progress=progress, checkpoint=Checkpoint(broken, experiment.settings()))
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".part")
        _thinned(result.metrics).to_parquet(unfinished, index=False)
        unfinished.rename(file)
        write_json(_described(file), {"settings": experiment.settings(), "ledger": _in_short(result.ledger)})
    if broken.exists():
        shutil.rmtree(broken)
    return Kept(pd.read_parquet(file), Ledger.from_dict(json.loads(_described(file).read_text())["ledger"]))


def _thinned(metrics: pd.DataFrame) -> pd.DataFrame:
    """The metrics, with every number of the clip rule (split "rule") in at most 600 of the rounds that tell it, evenly
    spread, the first and the last among them: a rule that follows noisy counts tells all of its numbers every round.
    """
    rule = metrics[metrics["split"] == "rule"]
    place = rule.groupby("metric")["round"].rank("dense").astype(int) - 1
    last = place.groupby(rule["metric"]).transform("max").clip(lower=_RULE_ROUNDS - 1)
    left_out = place * (_RULE_ROUNDS - 1) // last == (place - 1) * (_RULE_ROUNDS - 1) // last
    return metrics.drop(index=left_out[left_out].index)


def _in_short(ledger: Ledger) -> dict[str, Any]:
    """A ledger with all of its figures, and its events as they were known in advance: kilobytes, where those of bounds
    that follow noisy counts are megabytes. A budget looks at what was spent, so that with one all of them stay.
    """
    return {**ledger.to_dict(), **({} if ledger.budget else ledger.log.in_advance().to_dict())}


def is_kept(experiment: Experiment, folder: Path) -> bool:
    """Whether an experiment's run is in `folder`: one with the same settings, where those that did not exist when it
    was run have their defaults.
    """
    file = _described(_file(experiment, folder))
    if not file.exists():
        return False
    now, then = json.loads(in_json(experiment.settings())), json.loads(file.read_text())["settings"]
    return all(name in now and now[name] == value for name, value in then.items())


def _file(experiment: Experiment, folder: Path) -> Path:
    """Where a run's metrics are kept: under a number that depends on every setting that is not the default."""
    chosen = experiment.model_dump(mode="json", exclude_defaults=True)
    return folder / f"{key(json.dumps(chosen, sort_keys=True)):016x}.parquet"


def _described(file: Path) -> Path:
    """Where a run's settings and ledger are, the last that is written of it."""
    return file.with_suffix(".json")
