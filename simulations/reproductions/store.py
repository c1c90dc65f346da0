"""Runs that are kept: a run with the same settings is read back instead of run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from fedfair.fairness import ALL
from fedfair.randomness import key
from simulations.experiment import Experiment
from simulations.run import run


def measured(experiment: Experiment, folder: Path, progress: Callable[[int, int], None] = lambda *_: None
             ) -> pd.DataFrame:
    """The metrics of a run (see `simulations.result.Result`), with its epsilon as one more row of the test part.

    Read from `folder` if the same experiment is there; written there otherwise, whole or not at all. Raises what
    `simulations.run.run` raises.
    """
    file = folder / f"{key(json.dumps(experiment.settings(), sort_keys=True)):016x}.parquet"
    if file.exists():
        return pd.read_parquet(file)
    result = run(experiment, progress=progress)
    last = {"round": result.metrics["round"].max(), "split": "test", "group": ALL, "metric": "epsilon",
            "value": result.ledger.epsilon()}
    frame = pd.concat([result.metrics, pd.DataFrame([last])], ignore_index=True)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    frame.to_parquet(unfinished, index=False)
    unfinished.rename(file)
    return frame
