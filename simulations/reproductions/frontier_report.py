"""The frontier as pages to read: who passes whom, and the fronts as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.paper import save_figure
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_text
from simulations.files.saved_files import to_csv
from simulations.reproductions.frontier_choice import MEASURES, Limits
from simulations.statistics.over_seeds import over_seeds


class Found(NamedTuple):
    """What was found.

    Attributes:
        limits: Limits on each measure.
        fronts: What was chosen (`frontier_choice.fronts`).
        volumes: Hypervolumes by seed.
        compared: Differences to our methods.
        costs: Runs of each method and data set, and the seconds of one.
        impact: What noise adds to the gap of accuracy.
    """

    limits: Limits
    fronts: pd.DataFrame
    volumes: pd.DataFrame
    compared: pd.DataFrame
    costs: pd.DataFrame
    impact: pd.DataFrame

    def of(self, measure: str) -> Found:
        """Return what was found of one measure."""
        fronts, volumes, compared = (frame[frame["measure"] == measure]
                                     for frame in (self.fronts, self.volumes, self.compared))
        return self._replace(fronts=fronts, volumes=volumes, compared=compared)


class About(NamedTuple):
    """What the pages say of how it was made.

    Attributes:
        title: Title of the first page.
        command: The command that makes the pages.
        methods: What is compared.
        privacy: What epsilons are worth.
        seeds: Number of seeds.
        pictured_seeds: That of tables at the epsilons at which fronts are drawn.
        pictured: Epsilons at which fronts are drawn.
        left_out: Paragraphs on what was not asked for.
        made_with: Names the versions of the program that made the runs.
    """

    title: str
    command: str
    methods: str
    privacy: str
    seeds: int
    pictured_seeds: int
    pictured: Sequence[float]
    left_out: Sequence[str]
    made_with: str


def write(out: Path, found: Found, about: About) -> None:
    """Write a page with the summary and the first measure, a page for each other measure, and pictures."""
    first, *others = found.limits
    lines = [f"# {about.title}", "", f"`{about.command}`", "",
             f"{about.methods} For each limit on a measure the setting with the highest mean accuracy on the "
             "validation part within the limit there was kept. Figures are of the test part: means over "
             f"{_seeds(about)}, ± half a 95 % t-interval. {about.privacy}", "", about.made_with, "", *about.left_out,
             *_summary(found.compared)]
    if others:
        pages = " and ".join(f"[{MEASURES[name]}]({_page(name)})" for name in others)
        lines += [f"This page has the {MEASURES[first]}; others have the {pages}.", ""]
    lines += [*_measure(out, found.of(first), about), *_costs(found.costs)]
    write_text(out / "README.md", "\n".join(lines))
    for name in others:
        title = f"{about.title.partition(':')[0]} by {MEASURES[name]}"
        text = [f"# {title}", "", "[What is compared, and how](README.md).", ""]
        told = _impact(found.impact) if name == "accuracy_parity" and len(found.impact) else ()
        write_text(out / _page(name), "\n".join([*text, *told, *_measure(out, found.of(name), about)]))


def _seeds(about: About) -> str:
    """Return the numbers of seeds in words."""
    if about.pictured_seeds == about.seeds:
        return f"{about.seeds} seeds"
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in about.pictured)
    return f"{about.seeds} seeds, {about.pictured_seeds} of tables at epsilon {epsilons}"


def findings(compared: pd.DataFrame) -> list[str]:
    """Say for each measure and epsilon on how many data sets no method passes ours anywhere, and who does where."""
    lines = []
    for (ours, measure, epsilon), of_epsilon in compared.groupby(["ours", "measure", "epsilon"], sort=False):
        free, datasets = _free(of_epsilon), of_epsilon["dataset"].unique()
        others = [f"{method} on {dataset} within {', '.join(map(_limit, own['limit']))}"
                  for dataset, of_data in of_epsilon[of_epsilon["passes"]].groupby("dataset", sort=False)
                  for method, own in of_data.groupby("method", sort=False)]
        said = (f"{_named(float(str(epsilon)))}, {MEASURES[str(measure)]}: no front passes that of {ours} anywhere by "
                "more than its interval on ")
        lines.append(f"{said}{len(free)} of {len(datasets)} data sets ({', '.join(free) or 'none'})"
                     + (f"; it is passed by {'; '.join(others)}." if others else "."))
    return lines


def _free(compared: pd.DataFrame) -> list[str]:
    """Return the data sets on which no method passes ours anywhere."""
    passed = set(compared[compared["passes"]]["dataset"])
    return [name for name in compared["dataset"].unique() if name not in passed]


def _summary(compared: pd.DataFrame) -> Iterator[str]:
    """Yield tables of data sets where nothing passes ours: a row for each epsilon, a column for each measure."""
    measures = compared["measure"].unique().tolist()
    columns = ("epsilon", *(MEASURES[name] for name in measures))
    for ours, own in compared.groupby("ours", sort=False):
        lines: list[tuple[str, ...]] = []
        for epsilon, rows in own.groupby("epsilon", sort=False):
            cells = []
            for name in measures:
                of_measure = rows[rows["measure"] == name]
                free = _free(of_measure)
                cells.append(f"{len(free)} of {of_measure['dataset'].nunique()}: {', '.join(free) or 'none'}"
                             if len(of_measure) else "")
            lines.append((f"{epsilon:g}", *cells))
        yield from (f"No rival's front passes that of {ours} anywhere by more than its interval on:", "",
                    markdown(Table(columns=columns, rows=lines)), "")
    yield from (f"These are {len(compared):,} comparisons, with nothing taken off for their number: where there is no "
                "difference, one in forty passes by chance.", "")


def _page(measure: str) -> str:
    """Return the name of a measure's page."""
    return f"{measure.replace('_', '-')}.md"


def _named(epsilon: float) -> str:
    """Return an epsilon in words."""
    return f"Epsilon {epsilon:g}" if math.isfinite(epsilon) else "Without noise"


def _limit(limit: float) -> str:
    """Return a limit in words."""
    return f"{limit:g}" if math.isfinite(limit) else "no limit"


def _measure(out: Path, found: Found, about: About) -> Iterator[str]:
    """Yield what is told of one measure, and write its pictures."""
    yield from (*(f"- {line}" for line in findings(found.compared)), "")
    for epsilon in found.fronts["epsilon"].unique():
        yield from (f"## {_named(epsilon)}", "", *_volumes(found, epsilon))
        for dataset in found.fronts[found.fronts["epsilon"] == epsilon]["dataset"].unique():
            yield from _section(out, found, float(epsilon), str(dataset), epsilon in about.pictured)


def _volumes(found: Found, epsilon: float) -> Iterator[str]:
    """Yield the table of hypervolumes at one epsilon: a row for each method, a column for each data set."""
    own = found.volumes[found.volumes["epsilon"] == epsilon]
    datasets = own["dataset"].unique().tolist()
    rows: list[tuple[str, ...]] = []
    for method in own["method"].unique():
        values = [own[(own["method"] == method) & (own["dataset"] == name)]["volume"].tolist() for name in datasets]
        rows.append((method, *(_cell(over_seeds(each)) if each else "" for each in values)))
    yield from (_after(1, ("hypervolume", *datasets), rows), "")


def _section(out: Path, found: Found, epsilon: float, dataset: str, pictured: bool) -> Iterator[str]:
    """Yield one data set's table and picture at one epsilon, and write the picture."""
    own = found.fronts[(found.fronts["epsilon"] == epsilon) & (found.fronts["dataset"] == dataset)]
    measure = str(own["measure"].iloc[0])
    limits = [*found.limits[measure], math.inf]
    rows = [(method, *(_accuracy(own[own["method"] == method], limit) for limit in limits))
            for method in own["method"].unique()]
    yield from (f"### {dataset}, {_named(epsilon).lower()}", "",
                _after(1, ("accuracy within", *map(_limit, limits)), rows), "")
    if pictured:
        figure = _figure(own, dataset, epsilon)
        save_figure(figure, out)
        write_text(out / f"{figure.name}.csv", to_csv(own))
        yield from (f"![{figure.title}]({figure.name}.svg)", "")


def _impact(impact: pd.DataFrame) -> Iterator[str]:
    """Yield the table of what noise adds to the gap of accuracy: a row for each data set and method, by epsilon."""
    epsilons = impact["epsilon"].unique().tolist()
    yield from ("## What noise adds to the gap of accuracy", "",
                "Beside dpsgd without noise, at the setting with the highest accuracy on the validation part: that of "
                "without noise (not tuned again), or the best at this epsilon.", "")
    rows: list[tuple[str, ...]] = []
    for (dataset, method), own in impact.groupby(["dataset", "method"], sort=False):
        cells = [_cell(over_seeds(own[own["epsilon"] == epsilon]["added"].tolist())) for epsilon in epsilons]
        rows.append((str(dataset), str(method), *cells))
    yield from (_after(2, ("data set", "method", *(f"epsilon {epsilon:g}" for epsilon in epsilons)), rows), "")


def _costs(costs: pd.DataFrame) -> Iterator[str]:
    """Yield the table of runs and seconds."""
    yield from ("## Runs and seconds", "",
                "A run is a setting and a seed; seconds are the median of one on one thread, measuring included.", "")
    rows = [(row["method"], row["dataset"], str(row["runs"]),
             "" if math.isnan(row["seconds"]) else f"{row['seconds']:.2f}") for row in costs.to_dict("records")]
    yield from (_after(2, ("method", "data set", "runs", "seconds"), rows), "")


def _after(names: int, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first columns are `names` names, and all others figures."""
    return markdown(Table(columns=columns, rows=rows, figures=range(names, len(columns))))


def _accuracy(rows: pd.DataFrame, limit: float) -> str:
    """Return the accuracy within a limit, and the measure on the test part."""
    own = rows[rows["limit"] == limit]
    return (f"{_cell(over_seeds(own['accuracy'].tolist()))} ({own[str(own['measure'].iloc[0])].mean():.3f})"
            if len(own) else "")


def _cell(estimate: Estimate) -> str:
    """Return a mean with half its interval."""
    return f"{estimate.value:.3f} ± {(estimate.high - estimate.low) / 2:.3f}"


def _figure(own: pd.DataFrame, dataset: str, epsilon: float) -> Figure:
    """Return accuracy against the measure, a line for each method."""
    measure, series = str(own["measure"].iloc[0]), []
    for place, method in enumerate(own["method"].unique()):
        rows = own[own["method"] == method]
        points = [Point(over_seeds(part[measure].tolist()), over_seeds(part["accuracy"].tolist()))
                  for _, part in rows.groupby("limit")]
        series.append(Series(str(method), place, tuple(sorted(points, key=lambda point: point.x.value))))
    panel = Panel("", Scale(MEASURES[measure]), Scale("accuracy"), tuple(series))
    title = f"{dataset}, {_named(epsilon).lower()}"
    name = f"{dataset}-{epsilon:g}" + ("" if measure == next(iter(MEASURES)) else f"-{measure.replace('_', '-')}")
    return Figure(name, title, "Means over seeds.", (panel,))
