"""DP-EBM (Nori et al. 2021) at several settings on one table: what the frontier compares with its own methods.

PYTHON simulations/benchmarks/peers/dp_ebm_settings.py FOLDER

PYTHON is that of an environment with interpret-core, scikit-learn and pyarrow. FOLDER holds train.parquet and
held_out.parquet, and task.json as `private_classifiers` reads it, with "asked": the trainings by name, each with its
"epsilon", the columns that it is "without", and its "settings". Written there is scores.parquet: the probability of
"yes" for each held-out row, a column for each training. The last line that is printed is JSON: "seconds" of processor
time by training. This file imports nothing of fedfair, so that the environment does not need it.

Ranges of numbers are given, and noisy counts make bins within them. Categories are read off the training rows.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
from private_classifiers import Table, dp_ebm  # the file beside this one


def without(task: dict, columns: list[str]) -> dict:
    """Return the task without some columns."""
    kept = {of: {name: told for name, told in task[of].items() if name not in columns} for of in ("ranges", "kinds")}
    return {**task, **kept}


def main(folder: Path) -> None:
    """Train what is asked for, and write what it says of the held-out rows."""
    warnings.filterwarnings("ignore")
    task = json.loads((folder / "task.json").read_text())
    train, held_out = (pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "held_out"))
    scores, seconds = {}, {}
    for name, asked in task["asked"].items():
        told, began = without(task, asked["without"]), time.process_time()
        predict = dp_ebm(Table(train, told), asked["epsilon"], **asked["settings"])
        scores[name], seconds[name] = predict(Table(held_out, told)), time.process_time() - began
    pd.DataFrame(scores).to_parquet(folder / "scores.parquet")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
