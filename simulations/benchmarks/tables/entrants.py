"""Who takes part: a fit of this library, which pays for everything, and the peers, which are told ranges and types."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_numeric_dtype

from simulations.benchmarks import peers
from simulations.benchmarks.measuring import undisturbed
from simulations.benchmarks.tables.made import GROUP, LABEL, Array
from simulations.fitting.budget import default_delta
from simulations.fitting.fit import Fitted, Wanted, fit_with_records
from simulations.results.classifier import TrainedClassifier

FIT, TRUTH = "fit", "the truth"
KNOWN = 0.01
"""Public ranges of numbers are these quantiles of the whole table from below and above, or its ends if they are one."""


class Scores(NamedTuple):
    """What one classifier says.

    Attributes:
        name: Its name.
        epsilon: Its epsilon; None without privacy.
        score: Stated probability of "yes" for the test rows, `[n]`.
        own: The same for the training rows; None where it is not needed.
        seconds: Processor time of the training.
    """

    name: str
    epsilon: float | None
    score: Array
    own: Array | None
    seconds: float


def fitted(own: pd.DataFrame, epsilon: float, seed: int, gap: float | None = None, **settings: Any
           ) -> tuple[Fitted, float]:
    """Fit to all rows, and return it with its processor time; ranges, kinds, choice and figures are paid.

    Args:
        own: Rows with `LABEL`, and with `GROUP` if there are groups.
        epsilon: Epsilon of everything.
        seed: What noise follows from.
        gap: Largest gap that is allowed, by the released figures; None for any. With one, decisions know the group.
        **settings: Further settings.
    """
    began = time.process_time()
    made = fit_with_records(Wanted(
        own, LABEL, GROUP if GROUP in own else LABEL, epsilon, gap=gap,
        settings={"randomness": "seeded", "seed": seed, **({} if gap is None else {"attribute_in_model": True}),
                  **settings}))
    return made, time.process_time() - began


def score_of(made: Fitted, rows: pd.DataFrame) -> Array:
    """Return the probability of "yes" that a fit states for rows, `[n]`."""
    classifier = TrainedClassifier.of(made.result)
    return classifier.predict_proba(rows)[:, list(classifier.labels).index("yes")]


def peers_on(own: pd.DataFrame, test: pd.DataFrame, whole: pd.DataFrame, epsilons: Sequence[float], seed: int,
             python: str = sys.executable) -> tuple[list[Scores], dict[str, str]]:
    """Train all peers, and return what they say, and who is not at hand and why.

    Args:
        own: Training rows.
        test: Test rows.
        whole: Rows that ranges and categories are known from.
        epsilons: Epsilon of each training.
        seed: What their noise follows from.
        python: Python of the environment that the peers are in.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(_task(whole, len(own), epsilons, seed)), encoding="utf-8")
        own.to_parquet(folder / "train.parquet")
        test.to_parquet(folder / "test.parquet")
        said = undisturbed([python, f"{Path(peers.__file__).parent}/private_classifiers.py", name], timeout=3_600)
        scores, own_scores = (pd.read_parquet(folder / f"{kind}.parquet") for kind in ("scores", "own_scores"))
    made = []
    for column, seconds in said["seconds"].items():
        peer, _, epsilon = column.partition(" @ ")
        made.append(Scores(peer, float(epsilon) if epsilon else None, scores[column].to_numpy(),
                           own_scores[column].to_numpy(), seconds))
    return made, said["absent"]


def _task(whole: pd.DataFrame, rows: int, epsilons: Sequence[float], seed: int) -> dict[str, Any]:
    """Return what the peers are told."""
    features = whole.drop(columns=[LABEL, *([GROUP] if GROUP in whole else [])])
    numbers = [name for name in features if is_numeric_dtype(features[name])]
    kinds = {name: sorted({*features[name].astype(object).where(features[name].notna(), "missing").astype(str)})
             for name in features if name not in numbers}
    return {"label": LABEL, "ranges": {name: _range(features[name]) for name in numbers}, "kinds": kinds,
            "gone": [name for name in numbers if features[name].isna().any()],
            "epsilons": [*epsilons], "delta": default_delta(rows), "seed": seed}


def _range(values: pd.Series[Any]) -> tuple[float, float]:
    """Return what somebody who knows the field might say of a number's range."""
    values = values.dropna().astype(float)
    low, high = values.quantile(KNOWN), values.quantile(1 - KNOWN)
    return (float(low), float(high)) if low < high else (float(values.min()), float(values.max()))
