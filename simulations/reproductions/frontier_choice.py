"""Fronts from measured settings: what is chosen within a limit, how large a front is, and who passes whom."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedfair.fairness.metrics import ALL
from fedfair.node.front_counts import HELD_OUT
from simulations.statistics.over_seeds import over_seeds
from strategies.server.releases.front import MeasuredFront

Limits = Mapping[str, Sequence[float]]
"""Limits on each measure of inequality."""

MEASURES: Mapping[str, str] = {
    "demographic_parity": "gap of demographic parity", "accuracy_parity": "gap of accuracy",
    "worst_group_error": "error of the worst group"}
"""What is to be small, in words."""
_EACH = ["measure", "dataset", "epsilon", "method"]
_AT = ["measure", "dataset", "epsilon", "limit", "seed"]


def of_decisions(rows: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return accuracy, gaps (NaN for one that is unknown) and the worst group's accuracy, from metrics of one part."""
    by_group = {(group, metric): float(value) for group, metric, value in rows}
    accuracies = [value for (group, metric), value in by_group.items()
                  if metric == "accuracy" and group != ALL and not math.isnan(value)]
    gaps = {name: by_group.get((ALL, name), math.nan) for name in ("demographic_parity", "accuracy_parity")}
    return {"accuracy": by_group[ALL, "accuracy"], **gaps, "worst_group": min(accuracies, default=math.nan)}


def front_points(measured: MeasuredFront) -> list[dict[str, Any]]:
    """Return the settings of a front in words, with the figures of each, by part."""
    rows: dict[tuple[int, str], list[tuple[str, str, float]]] = defaultdict(list)
    for row in measured.rows:
        rows[row["point"], row["split"]].append((row["group"], row["metric"], row["value"]))
    return [{"setting": point.name, "figures": {split: of_decisions(rows[number, split]) for split in HELD_OUT}}
            for number, point in enumerate(measured.front.points)]


def fronts(points: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """Return what is chosen for each measure, data set, epsilon, method and limit, a row for each seed.

    The setting has the highest mean accuracy on the validation part among those whose mean of the measure there is
    within the limit, infinity for none; figures are those of the test part. A method without such a setting has no row,
    nor has a data set whose measure is unknown.

    Args:
        points: Every setting and seed, as `frontier.measured` returns them.
        limits: Limits on each measure.
    """
    columns = [*_EACH, "limit", "setting", "seed", "spent", "majority", "accuracy", *MEASURES]
    return pd.concat(_within(points, limits), ignore_index=True)[columns]


def _within(points: pd.DataFrame, limits: Limits) -> Iterator[pd.DataFrame]:
    """Yield the rows of `fronts`."""
    for measure, of_measure in limits.items():
        known = points.assign(measure=measure)
        for _, own in known.groupby(_EACH, sort=False):
            for limit, setting in _chosen(own, measure, of_measure).items():
                yield own[(own["setting"] == setting) & (own["split"] == "test")].assign(limit=limit)


def _chosen(own: pd.DataFrame, measure: str, limits: Sequence[float]) -> dict[float, str]:
    """Return the setting that is chosen for each limit, where there is one."""
    valid = own[own["split"] == "valid"].groupby("setting", sort=False)[["accuracy", measure]].mean()
    within = {limit: valid[valid[measure] <= limit] for limit in (*limits, math.inf)}
    return {limit: str(rows["accuracy"].idxmax()) for limit, rows in within.items() if len(rows)}


def impact(points: pd.DataFrame, reference: str, methods: Sequence[str]) -> pd.DataFrame:
    """Return what noise adds to the gap of accuracy, a row for each data set, epsilon, method and seed.

    The gap is compared with that of the reference without noise. A method's setting is that of the highest mean
    accuracy on the validation part at its epsilon; the reference is there also with its setting of without noise.
    Columns: dataset, epsilon, method, seed, added. Without rows if the reference was not measured without noise.

    Args:
        points: Every setting and seed.
        reference: The method that is compared with.
        methods: The methods, by name.
    """
    keys = ["method", "epsilon", "setting"]
    rows = []
    for dataset, own in points.groupby("dataset", sort=False):
        best = own[own["split"] == "valid"].groupby(keys)["accuracy"].mean().unstack().idxmax(axis=1)
        gaps = own[own["split"] == "test"].set_index([*keys, "seed"])["accuracy_parity"].sort_index()
        if (reference, math.inf) not in best.index:
            continue
        calm = str(best[reference, math.inf])
        for epsilon in filter(math.isfinite, best.index.get_level_values("epsilon").unique()):
            tried = {f"{reference}, not tuned again": (reference, calm),
                     **{method: (method, str(best[method, epsilon])) for method in methods}}
            for name, (method, setting) in tried.items():
                added = gaps[method, epsilon, setting] - gaps[reference, math.inf, calm]
                rows += [{"dataset": dataset, "epsilon": epsilon, "method": name, "seed": seed, "added": value}
                         for seed, value in added.dropna().items()]  # of seeds that both have
    return pd.DataFrame(rows, columns=["dataset", "epsilon", "method", "seed", "added"])


def volumes(chosen: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """Return the hypervolume of each front, a row for each measure, data set, epsilon, method and seed.

    It is the area, over the measure from 0 to its largest limit, under the best accuracy above the majority class's
    rate, relative to that of a front of accuracy 1.

    Args:
        chosen: What `fronts` returns.
        limits: Limits on each measure, the largest of which ends the area.
    """
    rows = []
    for names, own in chosen.groupby([*_EACH, "seed"], sort=False):
        measure, least = str(names[0]), float(own["majority"].iloc[0])
        widest = max(limits[measure])
        area = _area(own[measure].to_numpy(), (own["accuracy"] - least).clip(lower=0).to_numpy(), widest)
        rows.append({**dict(zip([*_EACH, "seed"], names, strict=True)), "volume": area / (widest * (1 - least))})
    return pd.DataFrame(rows)


def _area(gaps: np.ndarray, heights: np.ndarray, widest: float) -> float:
    """Return the area under the steps that points make: from each gap on, the largest height so far."""
    order = np.argsort(gaps, kind="stable")
    at = np.append(np.minimum(gaps[order], widest), widest)
    return float(np.sum(np.diff(at) * np.maximum.accumulate(heights[order]))) if len(gaps) else 0.0


def against(chosen: pd.DataFrame, ours: str) -> pd.DataFrame:
    """Return by how much each other method is more accurate than ours within each limit.

    Columns: measure, dataset, epsilon, ours, method, limit, mean, low, high (Student's 95 % interval of the
    difference by seed), and `passes`: whether the whole interval is above 0. Where ours has no setting within a limit,
    any method passes it.

    Args:
        chosen: What `fronts` returns.
        ours: The method that is compared with.
    """
    rows = []
    own = chosen[chosen["method"] == ours].set_index(_AT)["accuracy"]
    for names, other in chosen[chosen["method"] != ours].groupby([*_EACH, "limit"], sort=False):
        theirs = other.set_index(_AT)["accuracy"]
        difference = over_seeds((theirs - own.reindex(theirs.index)).tolist())
        missing = math.isnan(difference.value)
        rows.append({**dict(zip([*_EACH, "limit"], names, strict=True)), "ours": ours, "mean": difference.value,
                     "low": difference.low, "high": difference.high, "passes": missing or difference.low > 0})
    return pd.DataFrame(rows)
