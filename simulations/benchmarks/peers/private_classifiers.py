"""Other libraries' classifiers on one table: DP-EBM, diffprivlib, and scikit-learn without privacy.

PYTHON simulations/benchmarks/peers/private_classifiers.py FOLDER

PYTHON is that of an environment with scikit-learn and pyarrow, and interpret-core and diffprivlib for those of them.
FOLDER holds train.parquet and test.parquet, and task.json with "label", "ranges" of numbers, "gone", those with missing
values, "kinds", the values of each category, "epsilons", "delta" and "seed". Written there are scores.parquet for the
test rows and own_scores.parquet for the others: the probability of "yes", a column for each "classifier @ epsilon",
without epsilon where there is no privacy. The last line that is printed is JSON: "seconds" of processor time by column,
and who is "absent" and why. This file imports nothing of fedfair, so that the environment does not need it.

Ranges and categories come from the whole table at no cost, and types of columns too: an advantage over a fit.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

GONE, BINS = "missing", 32


class Table:
    """Rows as each peer takes them.

    Args:
        frame: The rows.
        task: See above.
    """

    def __init__(self, frame: pd.DataFrame, task: dict) -> None:
        self.frame, self.task = frame, task
        self.y = (frame[task["label"]] == "yes").to_numpy()

    def clipped(self, column: str) -> np.ndarray:
        """Return a number within its range, NaN where it is missing."""
        return self.frame[column].astype(float).clip(*self.task["ranges"][column]).to_numpy()

    def kind(self, column: str) -> pd.Series:
        """Return a category as text."""
        values = self.frame[column].astype(object)
        return values.where(values.notna(), GONE).astype(str)

    def as_columns(self) -> pd.DataFrame:
        """Return numbers and texts; what is missing is a bin below the range, since DP-EBM takes no missing number."""
        ranges = below(self.task)
        numbers = {name: np.nan_to_num(self.clipped(name), nan=ranges[name][0]) for name in self.task["ranges"]}
        return pd.DataFrame({**numbers, **{name: self.kind(name) for name in self.task["kinds"]}})

    def as_vectors(self) -> np.ndarray:
        """Return numbers from -1 to 1, 0 and a switch where one is missing, and a switch for each category."""
        parts = []
        for name, (low, high) in self.task["ranges"].items():
            value = 2 * (self.clipped(name) - low) / ((high - low) or 1.0) - 1
            parts += [np.nan_to_num(value, nan=0.0)]
            parts += [np.isnan(value)] if name in self.task["gone"] else []
        for name, known in self.task["kinds"].items():
            values = self.kind(name)
            parts += [values == each for each in known[1:]]
        return np.stack(parts, 1).astype(float)

    def as_codes(self) -> np.ndarray:
        """Return numbers as they are, and of each category its place among its values."""
        numbers = [self.frame[name].astype(float) for name in self.task["ranges"]]
        codes = [self.kind(name).map({each: place for place, each in enumerate(known)}).astype(float)
                 for name, known in self.task["kinds"].items()]
        return np.stack([*numbers, *codes], 1)


Predict = Callable[[Table], np.ndarray]
"""Returns the probability of "yes" for each row."""


def below(task: dict) -> dict:
    """Return ranges with a bin below for what is missing, where anything is."""
    return {name: (low - (high - low) / BINS if name in task["gone"] else low, high)
            for name, (low, high) in task["ranges"].items()}


def dp_ebm(own: Table, epsilon: float, **settings: float) -> Predict:
    """Train InterpretML's additive model on known types and ranges."""
    from interpret.privacy import DPExplainableBoostingClassifier

    task = own.task
    types = ["continuous"] * len(task["ranges"]) + ["nominal"] * len(task["kinds"])
    model = DPExplainableBoostingClassifier(feature_types=types, privacy_bounds=below(task), epsilon=epsilon, n_jobs=1,
                                            delta=task["delta"], random_state=task["seed"], **settings)
    model.fit(own.as_columns(), own.y)
    return lambda rows: model.predict_proba(rows.as_columns())[:, 1]


def diffprivlib(own: Table, epsilon: float) -> Predict:
    """Train diffprivlib's logistic regression, which is private at a delta of 0."""
    from diffprivlib.models import LogisticRegression as Private

    x = own.as_vectors()
    model = Private(epsilon=epsilon, data_norm=math.sqrt(x.shape[1]), random_state=own.task["seed"], max_iter=1_000)
    model.fit(x, own.y)
    return lambda rows: model.predict_proba(rows.as_vectors())[:, 1]


def logistic(own: Table, epsilon: None) -> Predict:
    """Train logistic regression without privacy on standardised columns."""
    x = own.as_vectors()
    mean, deviation = x.mean(0), x.std(0) + 1e-9
    model = LogisticRegression(max_iter=1_000).fit((x - mean) / deviation, own.y)
    return lambda rows: model.predict_proba((rows.as_vectors() - mean) / deviation)[:, 1]


def boosted(own: Table, epsilon: None) -> Predict:
    """Train boosted trees without privacy, which stop when a tenth of the rows says so."""
    numbers = len(own.task["ranges"])
    kinds = [numbers + place for place, known in enumerate(own.task["kinds"].values()) if len(known) < 255]
    model = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=500, early_stopping=True,
                                           categorical_features=kinds, random_state=own.task["seed"])
    model.fit(own.as_codes(), own.y)
    return lambda rows: model.predict_proba(rows.as_codes())[:, 1]


PRIVATE = {"DP-EBM .3/100": lambda own, epsilon: dp_ebm(own, epsilon, learning_rate=0.3, max_rounds=100),
           "DP-EBM defaults": dp_ebm, "diffprivlib": diffprivlib}
OPEN = {"logistic regression": logistic, "boosted trees": boosted}


def main(folder: Path) -> None:
    """Train each classifier that is at hand, and write what it says."""
    warnings.filterwarnings("ignore")
    task = json.loads((folder / "task.json").read_text())
    own, test = (Table(pd.read_parquet(folder / f"{name}.parquet"), task) for name in ("train", "test"))
    asked = [(name, train, epsilon) for name, train in PRIVATE.items() for epsilon in task["epsilons"]]
    asked += [(name, train, None) for name, train in OPEN.items()]
    scores, own_scores, seconds, absent = {}, {}, {}, {}
    for name, train, epsilon in asked:
        column, began = f"{name} @ {'' if epsilon is None else epsilon}", time.process_time()
        try:
            predict = train(own, epsilon)
        except ImportError as error:
            absent[name] = str(error)
            continue
        seconds[column] = time.process_time() - began
        scores[column], own_scores[column] = predict(test), predict(own)
    pd.DataFrame(scores).to_parquet(folder / "scores.parquet")
    pd.DataFrame(own_scores).to_parquet(folder / "own_scores.parquet")
    print(json.dumps({"seconds": seconds, "absent": absent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
