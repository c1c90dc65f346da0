"""Published tables and figures, run again and set beside the paper cell by cell: `fedfair reproduce NAME`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.paper import needs_matplotlib, save_figure
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions import markdown
from simulations.reproductions.cells import Statistics, claim_tests, compared, reported, strategy_name, values
from simulations.reproductions.published import PUBLISHED, Drawing, Planned, Published, load, plan
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.results.environment import environment
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons, findings, over_seeds

_POINTS = 60  # of a line, at most
_NOT_NEGATIVE = ("accuracy", "loss", "loss_exact", "gradient_norm", "gradient_norm_exact", "clip_norms")
_MEANS = "Means over seeds, with 95 % confidence intervals (Student) where there are several."


def reproduce(name: str, out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
              folder: Path = PUBLISHED) -> pd.DataFrame:
    """Run a published table, `jobs` runs at a time, write it to `out`, and return the cells (see `cells.compared`).

    `out` gets README.md, environment.json and the figures, and cells.csv and statistics.csv where the paper has
    numbers. The runs are kept, so that an interrupted reproduction, or one with more seeds or data sets, goes on where
    it was. Raises `ValueError` for an unknown name, of a table or a data set, or where figures cannot be drawn,
    `FileExistsError` if the folder holds something else, another `OSError` if it or that of the runs cannot be written,
    and what `kept_runs` raises.
    """
    published, cells = load(name, folder)
    if published.figures:
        needs_matplotlib()
    planned = plan(published, request)
    folder_of_runs = request.begin(name, out)
    runs = kept_runs([run.experiment for run in planned], folder_of_runs, on_round, jobs)
    metrics = _metrics(published, planned, runs)
    figures = list(drawn(published, planned, runs)) if planned else []
    for figure in figures:
        _save(figure, out)
    for table in ("cells.csv", "statistics.csv"):
        (out / table).unlink(missing_ok=True)  # of an earlier reproduction that had more to compare
    statistics = _statistics(published, metrics, out) if len(cells) and planned else Statistics()
    cells = compared(published, cells, values(metrics, published.pairs, published.losses) if planned else {})
    if len(cells):
        write_text(out / "cells.csv", to_csv(cells))
    write_json(out / "environment.json", environment([run.experiment for run in planned]))
    write_text(out / "README.md", markdown.report(
        name, published, cells, figures, statistics, request, versions(folder_of_runs, [e for _, _, e in planned])))
    return cells


def _statistics(published: Published, metrics: pd.DataFrame, out: Path) -> Statistics:
    """Write every test to statistics.csv, and return the results."""
    measured = measures(reported(metrics, published.losses), published.pairs)
    every = comparisons(measured)
    write_text(out / "statistics.csv", to_csv(every))
    return Statistics(claim_tests(published, every), {
        str(dataset): findings(rows, every[every["dataset"] == dataset], published.pairs.get(str(dataset)))
        for dataset, rows in measured.groupby(level="dataset", sort=False)})


def _save(figure: Figure, out: Path) -> None:
    """Save a figure, and its numbers as CSV."""
    save_figure(figure, out)
    table = figure.table()
    rows = pd.DataFrame(table.rows, columns=list(table.columns))
    write_text(out / f"{figure.name}.csv", to_csv(rows))


def _metrics(published: Published, planned: Sequence[Planned], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return the metrics of all runs under the paper's names, with epsilon as one more metric of the test part."""
    frames = []
    for (dataset, method, experiment), run in zip(planned, runs, strict=True):
        last = {"round": run.metrics["round"].max(), "split": "test", "group": ALL, "metric": "epsilon",
                "value": run.ledger.epsilon(accountant=published.accountant)}
        frame = pd.concat([run.metrics, pd.DataFrame([last])], ignore_index=True)
        frames.append(frame.assign(dataset=dataset, strategy=strategy_name(published, method), seed=experiment.seed))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


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
