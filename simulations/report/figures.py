"""The figures of one comparison: accuracy by group, training curves, and the clip rules' numbers over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL, Metric, find
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.results.comparison import Comparison
from simulations.statistics.over_seeds import of_records, over_seeds, share_over_seeds

INTERVALS = "Intervals: 95 % confidence of the mean over seeds (Student)."
_BINS = 80


def accuracy_figure(comparison: Comparison) -> Figure:
    """Show test accuracy with its interval: a panel for each group, a row for each method."""
    rows = {method: float(-place) for place, method in enumerate(comparison.methods)}
    ticks = {row: method for method, row in rows.items()}

    def marks(group: str) -> tuple[Series, ...]:
        """Return one group's accuracy under each method."""
        return tuple(Series(method, place, (Point(_accuracy(comparison, method, group), Estimate(row)),), joined=False)
                     for place, (method, row) in enumerate(rows.items()))

    intervals = INTERVALS if comparison.seeds > 1 else ("One seed. Intervals: 95 % confidence for other test records "
                                                        "(Wilson); other seeds vary too.")
    panels = tuple(Panel(title, Scale("accuracy"), Scale("", ticks=ticks), marks(group))
                   for group, title in titles(comparison).items())
    return Figure("accuracy", "Accuracy of each group", f"On test records after the last round. {intervals}", panels,
                  same="x")


def training_figure(comparison: Comparison, metric: str = "accuracy") -> Figure:
    """Show a metric of the test part during the training: a panel for each group, a line for each method."""
    rows, across = _timed(comparison, "test", metric)
    rows = rows.assign(place=rows.groupby(["strategy", "seed", "group"]).cumcount())
    shown = find(metric).title
    panels = []
    for group, title in titles(comparison).items():
        of_group = rows[rows["group"] == group]
        panels.append(Panel(title, Scale(across), Scale(shown), tuple(
            Series(method, number, tuple(_evaluations(of_group[of_group["strategy"] == method], find(metric))))
            for number, method in enumerate(comparison.methods))))
    return Figure(f"training-{metric}", f"{shown[0].upper()}{shown[1:]} of each group during the training",
                  f"On test records. {INTERVALS if comparison.seeds > 1 else 'One seed.'}", tuple(panels), same="y")


def bounds_figure(comparison: Comparison) -> Figure | None:
    """Show the numbers of clip rules that changed: their median, and their range over seeds and neighbouring rounds.

    A panel for each number and group, a line for each method that changed it; None if no number changed.
    """
    rows, across = _timed(comparison, "rule")
    changed = rows.groupby(["strategy", "metric"])["round"].transform("nunique") > 1
    panels: dict[tuple[str, str], list[Series]] = {}
    for key, values in rows[changed].groupby(["metric", "group", "strategy"], sort=False):
        metric, group, method = map(str, key)
        line = Series(method, comparison.methods.index(method), tuple(_binned(values)))
        panels.setdefault((NUMBERS.get(metric, metric), group), []).append(line)
    if not panels:
        return None
    return Figure("bounds", "Clip norms and bounds during the training",
                  "Median, and range over seeds and neighbouring rounds. All are post-processing of noisy counts, and "
                  "cost nothing beyond what the ledger holds.",
                  tuple(Panel(number if group == ALL else f"{number}, group {group}", Scale(across),
                              Scale(number, log=True), tuple(lines)) for (number, group), lines in panels.items()))


NUMBERS = {"clip_norms": "clip norm", "clip_norm": "clip norm", "bound": "bound Z", "weights": "weight of a group"}
"""Names of a clip rule's numbers in words (see `fedfair.mechanisms.clipping`)."""


def constants(comparison: Comparison) -> list[str]:
    """Describe the numbers of clip rules that never changed."""
    rows = comparison.metrics[comparison.metrics["split"] == "rule"]
    sentences = []
    for key, numbers in rows.groupby(["strategy", "metric"], sort=False):
        method, metric = map(str, key)
        if numbers["round"].nunique() == 1:
            values = ", ".join(f"{value:g}" for value in numbers["value"].unique())
            sentences.append(f"{method}: {NUMBERS.get(metric, metric)} {values}")
    return sentences


def titles(comparison: Comparison) -> dict[str, str]:
    """Return the titles of groups: all, then each with the number of its training records, the smallest first."""
    return {ALL: "all groups", **{group: f"{group} ({size:,} records)" if size else group
                                  for group, size in comparison.sizes.items()}}


def _accuracy(comparison: Comparison, method: str, group: str) -> Estimate:
    """Return the test accuracy of a group over seeds, or over records for a single seed."""
    runs = comparison.final.xs(method, level="strategy")
    if len(runs) > 1:
        return share_over_seeds(list(runs[group, "accuracy"]))
    return of_records(float(runs[group, "accuracy"].iloc[0]), float(runs[group, "records"].iloc[0]))


def _timed(comparison: Comparison, split: str, metric: str | None = None) -> tuple[pd.DataFrame, str]:
    """Return rows with their time, `now`, and the label of the time axis.

    Time is in rounds if all runs have about equally many, else in percent of the training.
    """
    every = comparison.metrics
    last = every.groupby(["strategy", "seed"])["round"].transform("max")
    same = last.max() <= 1.02 * last.min()
    rows = every.assign(now=every["round"] if same else 100 * every["round"] / last.clip(lower=1))
    rows = rows[rows["split"] == split]
    return rows if metric is None else rows[rows["metric"] == metric], "round" if same else "training done, %"


def _evaluations(rows: pd.DataFrame, metric: Metric) -> Iterator[Point]:
    """Yield one method's evaluations of a group over seeds, in order."""
    for _, values in rows.groupby("place"):
        yield Point(Estimate(float(values["now"].mean())), over_seeds(list(values["value"]), metric.least, metric.most))


def _binned(rows: pd.DataFrame) -> Iterator[Point]:
    """Yield one number of one method's rule in at most 80 parts of the training, from rows that say when it changed."""
    wide = rows.pivot_table(index="now", columns="seed", values="value").ffill()
    times, numbers = wide.index.to_numpy(float), wide.to_numpy(float)
    for part in np.array_split(np.arange(len(wide)), min(_BINS, len(wide))):
        values = numbers[part]
        yield Point(Estimate(float(times[part].mean())),
                    Estimate(float(np.nanmedian(values)), float(np.nanmin(values)), float(np.nanmax(values))))
