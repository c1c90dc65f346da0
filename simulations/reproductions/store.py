"""Runs that are kept: a run with the same settings is read back instead of run again, a broken one goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.randomness import key
from simulations.checkpoint import Checkpoint
from simulations.experiment import Experiment
from simulations.files import write_json
from simulations.processes import in_processes
from simulations.run import run

OnRound = Callable[[int, int, str, int, int], None]
"""See `simulations.compare.OnRound`."""


class Kept(NamedTuple):
    """What is kept of a run: its metrics (see `simulations.result.Result`) and its ledger."""

    metrics: pd.DataFrame
    ledger: Ledger


def kept_runs(experiments: Sequence[Experiment], folder: Path, on_round: OnRound = lambda *_: None, jobs: int = 1
              ) -> list[Kept]:
    """Every experiment's run, those that are not in `folder` after running them there, each once, `jobs` at a time.

    With several jobs each is a process with one thread of its own. Raises what `simulations.run.run` raises.
    """
    planned = {_file(experiment, folder): experiment for experiment in experiments}
    missing = [experiment for file, experiment in planned.items() if not file.exists()]
    if jobs > 1 and len(missing) > 1:
        for done, _ in enumerate(in_processes(partial(kept, folder=folder), missing, jobs)):
            on_round(done, len(missing), f"{jobs} runs at a time", 1, 1)
    runs = []
    for done, experiment in enumerate(experiments):
        label = f"{experiment.dataset}, {experiment.strategy}, seed {experiment.seed}"

        def progress(rounds: int, of: int, done: int = done, label: str = label) -> None:
            on_round(done, len(experiments), label, rounds, of)

        runs.append(kept(experiment, folder, progress))
    return runs


def kept(experiment: Experiment, folder: Path, progress: Callable[[int, int], None] = lambda *_: None) -> Kept:
    """One experiment's run, from `folder` if it is there; else run, from its last checkpoint on, and written there,
    whole or not at all.
    """
    file = _file(experiment, folder)
    ledger, broken = file.with_suffix(".json"), file.with_suffix("")
    if not file.exists():
        result = run(experiment, progress=progress, checkpoint=Checkpoint(broken, experiment.settings()))
        write_json(ledger, result.ledger.to_dict())
        unfinished = file.with_suffix(".part")
        result.metrics.to_parquet(unfinished, index=False)
        unfinished.rename(file)
    if broken.exists():
        shutil.rmtree(broken)
    return Kept(pd.read_parquet(file), Ledger.from_dict(json.loads(ledger.read_text())))


def _file(experiment: Experiment, folder: Path) -> Path:
    """Where a run is kept: under a number that depends on every setting."""
    return folder / f"{key(json.dumps(experiment.settings(), sort_keys=True)):016x}.parquet"
