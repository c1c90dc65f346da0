"""The figures of a reproduction, from the runs that its tables come from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.reproductions.page_runs import Kept
from simulations.reproductions.published import Drawing, Planned, Published
from simulations.statistics.over_seeds import over_seeds

_POINTS = 60  # of a line, at most
_NOT_NEGATIVE = ("accuracy", "loss", "loss_exact", "gradient_norm", "gradient_norm_exact", "clip_norms")
_MEANS = "Means over seeds, with 95 % confidence intervals (Student) where there are several."


def drawn(published: Published, planned: Sequence[Planned], runs: Sequence[Kept]) -> Iterator[Figure]:
    """Yield every figure of the description; raise `ValueError` for a metric that no run has."""
    frames = [run.metrics.assign(dataset=plan.dataset, method=plan.method, strategy=plan.experiment.strategy,
                                 seed=plan.experiment.seed, epsilon=run.ledger.epsilon(),
                                 records=_training_records(run.metrics), **_settings(published, plan))
              for plan, run in zip(planned, runs, strict=True)]
    every = pd.concat(frames, ignore_index=True)
    for drawing in published.figures:
        rows = _shown(drawing, every)
        panels = {"by-group": _by_group, "course": _course, "against": _against}[drawing.kind](drawing, rows)
        yield Figure(drawing.name, drawing.title, f"{drawing.text} {_MEANS}".strip(), tuple(panels),
                     same="y" if drawing.kind == "course" and not drawing.log else "neither")


def _shown(drawing: Drawing, every: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a figure shows; raise `ValueError` for a metric that none of them has."""
    rows = every[every["metric"].isin(drawing.metric) & (every["split"] == drawing.split)]
    rows = rows[rows["method"].isin(drawing.methods)] if drawing.methods else rows
    rows = rows[rows["group"].isin(drawing.groups)] if drawing.groups else rows
    for metric in drawing.metric:
        if metric not in set(rows["metric"]):
            raise ValueError(f"figure {drawing.name!r} shows {metric!r} of the part {drawing.split!r}, which no run "
                             "has measured: correct the figure's description, or, if the runs were kept by an earlier "
                             "version that did not measure it, take an empty folder")
    return rows


def _settings(published: Published, plan: Planned) -> dict[str, float]:
    """Return a run's values of the settings along which some figure is drawn."""
    wanted = {drawing.across for drawing in published.figures} - {"", "epsilon", "records"}
    return {name: float(getattr(plan.experiment, name)) for name in wanted}


def _training_records(metrics: pd.DataFrame) -> pd.Series:
    """Return for each row of a run's metrics how many records of its group were trained on; NaN if not counted."""
    counted = metrics[(metrics["split"] == "train") & (metrics["metric"] == "records")]
    return metrics["group"].map(counted.groupby("group")["value"].last())


def _by_group(drawing: Drawing, rows: pd.DataFrame) -> Iterator[Panel]:
    """Yield a panel for each data set: at the end of training, a mark for each group and method."""
    for dataset, ends in _last(rows[rows["group"] != ALL]).groupby("dataset", sort=False):
        ticks = dict(enumerate(ends["group"].unique()))
        series = [Series(str(method), number, _marks(drawing, of, ticks))
                  for number, (method, of) in enumerate(ends.groupby("method", sort=False))]
        yield Panel(str(dataset), Scale("group", ticks={float(place): name for place, name in ticks.items()}),
                    Scale(drawing.label, drawing.log), tuple(series))


def _marks(drawing: Drawing, ends: pd.DataFrame, ticks: Mapping[int, str]) -> tuple[Point, ...]:
    """Return a mark for each group of one method."""
    return tuple(Point(Estimate(float(place)), _mean(drawing, ends[ends["group"] == group]["value"]))
                 for place, group in ticks.items())


def _course(drawing: Drawing, rows: pd.DataFrame) -> Iterator[Panel]:
    """Yield a panel for each data set and group, with a line over the rounds for each method, and each metric."""
    names = rows["method"]
    if len(drawing.metric) > 1:
        names = names + ", " + rows["metric"].str.replace("_", " ")
    numbers = {name: number for number, name in enumerate(names.unique())}
    for (dataset, group), shown in rows.groupby(["dataset", "group"], sort=False):
        lines = tuple(Series(str(name), numbers[name], tuple(_line(drawing, of)))
                      for name, of in shown.groupby(names, sort=False))
        yield Panel(f"{dataset}, {group}", Scale("round"), Scale(drawing.label, drawing.log), lines)


def _line(drawing: Drawing, rows: pd.DataFrame) -> Iterator[Point]:
    """Yield a line's points over the rounds; where a round reports no value, the last one still holds."""
    wide = rows.pivot_table(index="round", columns="seed", values="value").ffill()
    places = np.unique(np.linspace(0, len(wide) - 1, _POINTS).round().astype(int))
    for place in places:
        yield Point(Estimate(float(wide.index[place])), _mean(drawing, wide.iloc[place]))


def _mean(drawing: Drawing, values: pd.Series) -> Estimate:
    """Return the mean over seeds, with an interval cut to the values that the metric can take."""
    most = 1.0 if drawing.metric[0] == "accuracy" else math.inf
    least = -most if drawing.minus else 0.0 if drawing.metric[0] in _NOT_NEGATIVE else -math.inf
    return over_seeds(list(values), least, most)


def _against(drawing: Drawing, rows: pd.DataFrame) -> Iterator[Panel]:
    """Yield a panel for each data set and group: at the end of training, along `across`, a line for each strategy."""
    ends = _last(rows)
    if drawing.minus:
        keys = ["dataset", "group", "seed"]
        reference = ends[ends["method"] == drawing.minus].set_index(keys)["value"]
        ends = ends[ends["method"] != drawing.minus]
        ends = ends.assign(value=ends["value"].to_numpy() - reference.reindex(
            pd.MultiIndex.from_frame(ends[keys])).to_numpy())
    for (dataset, group), shown in ends.groupby(["dataset", "group"], sort=False):
        lines = []
        for number, (strategy, of) in enumerate(shown.groupby("strategy", sort=False)):
            points = [Point(Estimate(float(at[drawing.across].mean())), _mean(drawing, at["value"]), str(method))
                      for method, at in of.groupby("method", sort=False)]
            lines.append(Series(str(strategy), number, tuple(sorted(points, key=lambda point: point.x.value))))
        yield Panel(f"{dataset}, {group}", Scale(drawing.across.replace("_", " ")), Scale(drawing.label, drawing.log),
                    tuple(lines))


def _last(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every run and group."""
    return rows.sort_values("round", kind="stable").groupby(["dataset", "method", "seed", "group"], sort=False).tail(1)
