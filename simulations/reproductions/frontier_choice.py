"""Fronts from measured settings: what is chosen within a limit, how large a front is, and who passes whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedfair.fairness.metrics import ALL
from fedfair.node.front_counts import HELD_OUT
from simulations.report.estimates import over_seeds
from strategies.server.front import MeasuredFront

GAP = "demographic_parity"
_EACH = ["dataset", "epsilon", "method"]
_FIGURES = ("accuracy", GAP, "accuracy_parity", "worst_group")


def of_decisions(rows: pd.DataFrame) -> dict[str, float]:
    """Return accuracy, gaps and the accuracy of the worst group from long metrics of one part.

    Args:
        rows: Columns group, metric and value.
    """
    overall = rows[rows["group"] == ALL].set_index("metric")["value"]
    accuracies = rows[(rows["metric"] == "accuracy") & (rows["group"] != ALL)]["value"]
    return {"accuracy": float(overall["accuracy"]), GAP: float(overall[GAP]),
            "accuracy_parity": float(overall["accuracy_parity"]), "worst_group": float(accuracies.min())}


def front_points(measured: MeasuredFront) -> list[dict[str, Any]]:
    """Return the settings of a front in words, with the figures of each, by part.

    Args:
        measured: A front with figures on the validation and the test part.
    """
    rows = pd.DataFrame(measured.rows)
    figures = {key: of_decisions(own) for key, own in rows.groupby(["point", "split"])}
    return [{"setting": point.name, "figures": {split: figures[number, split] for split in HELD_OUT}}
            for number, point in enumerate(measured.front.points)]


def fronts(points: pd.DataFrame, limits: Sequence[float]) -> pd.DataFrame:
    """Return what is chosen for each data set, epsilon, method and limit, a row for each seed.

    The setting has the highest mean accuracy on the validation part among those whose mean gap there is within the
    limit, infinity for none; figures are those of the test part. A method without such a setting has no row.

    Args:
        points: Every setting and seed, as `frontier.measured` returns them.
        limits: Limits on the gap.
    """
    made = []
    for _, own in points.groupby(_EACH, sort=False):
        for limit, setting in _chosen(own, limits).items():
            made.append(own[(own["setting"] == setting) & (own["split"] == "test")].assign(limit=limit))
    columns = [*_EACH, "limit", "setting", "seed", "spent", *_FIGURES]
    return pd.concat(made, ignore_index=True)[columns]


def _chosen(own: pd.DataFrame, limits: Sequence[float]) -> dict[float, str]:
    """Return the setting that is chosen for each limit, where there is one."""
    valid = own[own["split"] == "valid"].groupby("setting", sort=False)[["accuracy", GAP]].mean()
    within = {limit: valid[valid[GAP] <= limit] for limit in (*limits, math.inf)}
    return {limit: str(rows["accuracy"].idxmax()) for limit, rows in within.items() if len(rows)}


def volumes(points: pd.DataFrame, limits: Sequence[float]) -> pd.DataFrame:
    """Return the hypervolume of each front, a row for each data set, epsilon, method and seed.

    It is the area, over gaps from 0 to the largest limit, under the best accuracy above the least accuracy of any
    front of the data set, relative to that of a front of accuracy 1.

    Args:
        points: Every setting and seed.
        limits: Limits on the gap, the largest of which ends the area.
    """
    chosen, widest = fronts(points, limits), max(limits)
    rows = []
    for dataset, of_data in chosen.groupby("dataset", sort=False):
        least = float(of_data["accuracy"].min())
        for (epsilon, method, seed), own in of_data.groupby(["epsilon", "method", "seed"], sort=False):
            area = _area(own[GAP].to_numpy(), own["accuracy"].to_numpy() - least, widest)
            rows.append({"dataset": dataset, "epsilon": epsilon, "method": method, "seed": seed,
                         "volume": area / (widest * (1 - least))})
    return pd.DataFrame(rows)


def _area(gaps: np.ndarray, heights: np.ndarray, widest: float) -> float:
    """Return the area under the steps that points make: from each gap on, the largest height so far."""
    order = np.argsort(gaps, kind="stable")
    at = np.append(np.minimum(gaps[order], widest), widest)
    return float(np.sum(np.diff(at) * np.maximum.accumulate(heights[order]))) if len(gaps) else 0.0


def against(chosen: pd.DataFrame, ours: str) -> pd.DataFrame:
    """Return by how much each other method is more accurate than ours within each limit.

    Columns: dataset, epsilon, ours, method, limit, mean, low, high (Student's 95 % interval of the difference by
    seed), and `passes`: whether the whole interval is above 0. Where ours has no setting within a limit, any method
    passes it.

    Args:
        chosen: What `fronts` returns.
        ours: The method that is compared with.
    """
    rows = []
    own = chosen[chosen["method"] == ours].set_index(["dataset", "epsilon", "limit", "seed"])["accuracy"]
    for names, other in chosen[chosen["method"] != ours].groupby([*_EACH, "limit"], sort=False):
        dataset, epsilon, method, limit = names
        theirs = other.set_index(["dataset", "epsilon", "limit", "seed"])["accuracy"]
        difference = over_seeds((theirs - own.reindex(theirs.index)).tolist())
        missing = math.isnan(difference.mean)
        rows.append({"dataset": dataset, "epsilon": epsilon, "ours": ours, "method": method, "limit": limit,
                     "mean": difference.mean, "low": difference.low, "high": difference.high,
                     "passes": missing or difference.low > 0})
    return pd.DataFrame(rows)
