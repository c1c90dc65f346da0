"""The figures of one comparison: accuracy by group, training curves, and the clip rules' numbers over time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.report.estimates import Estimate, of_records, over_seeds, share_over_seeds
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.folders import Comparison

INTERVALS = "Intervals: 95 % confidence of the mean over seeds (Student)."
_BINS = 80


def accuracy_figure(comparison: Comparison) -> Figure:
    """A panel for each group, a row for each method: test accuracy with its interval."""
    rows = {method: float(-place) for place, method in enumerate(comparison.methods)}
    ticks = {row: method for method, row in rows.items()}

    def marks(group: str) -> tuple[Series, ...]:
        """One group's accuracy under each method."""
        return tuple(Series(method, place, (Point(_accuracy(comparison, method, group), Estimate(row)),), joined=False)
                     for place, (method, row) in enumerate(rows.items()))

    said = INTERVALS if comparison.seeds > 1 else ("One seed. Intervals: 95 % confidence for other test records "
                                                   "(Wilson); other seeds vary too.")
    panels = tuple(Panel(title, Scale("accuracy"), Scale("", ticks=ticks), marks(group))
                   for group, title in titles(comparison).items())
    return Figure("accuracy", "Accuracy of each group", f"On test records after the last round. {said}", panels,
                  same="x")


def training_figure(comparison: Comparison, metric: str = "accuracy") -> Figure:
    """A panel for each group, a line for each method: a metric of the test part over the training."""
    rows, across = _timed(comparison, "test", metric)
    rows = rows.assign(place=rows.groupby(["strategy", "seed", "group"]).cumcount())
    panels = []
    for group, title in titles(comparison).items():
        own = rows[rows["group"] == group]
        panels.append(Panel(title, Scale(across), Scale(metric), tuple(
            Series(method, number, tuple(_evaluations(own[own["strategy"] == method], metric)))
            for number, method in enumerate(comparison.methods))))
    return Figure(f"training-{metric}", f"{metric.capitalize()} of each group during the training",
                  f"On test records. {INTERVALS if comparison.seeds > 1 else 'One seed.'}", tuple(panels), same="y")


def bounds_figure(comparison: Comparison) -> Figure | None:
    """A panel for each number of a clip rule and group, a line for each method in which it moved: its median, and its
    range over seeds and neighbouring rounds; None if all stood still.
    """
    rows, across = _timed(comparison, "rule")
    moved = rows.groupby(["strategy", "metric"])["round"].transform("nunique") > 1
    panels: dict[tuple[str, str], list[Series]] = {}
    for key, own in rows[moved].groupby(["metric", "group", "strategy"], sort=False):
        metric, group, method = map(str, key)
        line = Series(method, comparison.methods.index(method), tuple(_binned(own)))
        panels.setdefault((NUMBERS.get(metric, metric), group), []).append(line)
    if not panels:
        return None
    return Figure("bounds", "Clip norms and bounds during the training",
                  "Median, and range over seeds and neighbouring rounds. All are post-processing of noisy counts, and "
                  "cost nothing beyond what the ledger holds.",
                  tuple(Panel(number if group == ALL else f"{number}, group {group}", Scale(across),
                              Scale(number, log=True), tuple(lines)) for (number, group), lines in panels.items()))


NUMBERS = {"clip_norms": "clip norm", "clip_norm": "clip norm", "bound": "bound Z", "weights": "weight of a group"}
"""What a clip rule's numbers are called (see `fedfair.mechanisms.clipping`)."""


def constants(comparison: Comparison) -> list[str]:
    """The numbers of clip rules that stood still, in words."""
    rows = comparison.metrics[comparison.metrics["split"] == "rule"]
    told = []
    for key, own in rows.groupby(["strategy", "metric"], sort=False):
        method, metric = map(str, key)
        if own["round"].nunique() == 1:
            values = ", ".join(f"{value:g}" for value in own["value"].unique())
            told.append(f"{method}: {NUMBERS.get(metric, metric)} {values}")
    return told


def titles(comparison: Comparison) -> dict[str, str]:
    """The panels of groups: all, then each with the number of its training records, the smallest first."""
    return {ALL: "all groups", **{group: f"{group} ({size:,} records)" for group, size in comparison.sizes.items()}}


def _accuracy(comparison: Comparison, method: str, group: str) -> Estimate:
    """The test accuracy of a group over seeds, or over records for a single seed."""
    runs = comparison.final.xs(method, level="strategy")
    if len(runs) > 1:
        return share_over_seeds(list(runs[group, "accuracy"]))
    return of_records(float(runs[group, "accuracy"].iloc[0]), float(runs[group, "records"].iloc[0]))


def _timed(comparison: Comparison, split: str, metric: str | None = None) -> tuple[pd.DataFrame, str]:
    """Rows with their place along the axis of time, `now`, and that axis's label: rounds if all runs have about
    equally many, else percent.
    """
    every = comparison.metrics
    last = every.groupby(["strategy", "seed"])["round"].transform("max")
    same = last.max() <= 1.02 * last.min()
    rows = every.assign(now=every["round"] if same else 100 * every["round"] / last.clip(lower=1))
    rows = rows[rows["split"] == split]
    return rows if metric is None else rows[rows["metric"] == metric], "round" if same else "training done, %"


def _evaluations(rows: pd.DataFrame, metric: str) -> Iterator[Point]:
    """One method's evaluations of a group, one after the other, over seeds."""
    most = 1.0 if metric == "accuracy" else math.inf
    for _, values in rows.groupby("place"):
        yield Point(Estimate(float(values["now"].mean())), over_seeds(list(values["value"]), 0.0, most))


def _binned(rows: pd.DataFrame) -> Iterator[Point]:
    """One number of one method's rule in at most 80 parts of the training, from rows that tell when it changed."""
    wide = rows.pivot_table(index="now", columns="seed", values="value").ffill()
    times, numbers = wide.index.to_numpy(float), wide.to_numpy(float)
    for part in np.array_split(np.arange(len(wide)), min(_BINS, len(wide))):
        values = numbers[part]
        yield Point(Estimate(float(times[part].mean())),
                    Estimate(float(np.nanmedian(values)), float(np.nanmin(values)), float(np.nanmax(values))))
