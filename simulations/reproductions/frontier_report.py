"""The frontier as a page to read: who passes whom, and the fronts as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from simulations.report.estimates import Estimate, over_seeds
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.paper import save_figure
from simulations.reproductions.frontier_choice import GAP
from simulations.reproductions.request import Request
from simulations.results.atomic_files import write_text
from simulations.results.csv_text import to_csv

_NAME = "frontier"


class Found(NamedTuple):
    """What was found.

    Attributes:
        limits: Limits on the gap.
        fronts: What was chosen (`frontier_choice.fronts`).
        volumes: Hypervolumes by seed.
        compared: Differences to our methods.
    """

    limits: Sequence[float]
    fronts: pd.DataFrame
    volumes: pd.DataFrame
    compared: pd.DataFrame


def write(out: Path, found: Found, seeds: int, request: Request, quick: str, made_with: str) -> None:
    """Write the page and its pictures.

    Args:
        out: Folder.
        found: What was found.
        seeds: Number of seeds.
        request: What was asked for.
        quick: What the quick version leaves out.
        made_with: Names the versions of the program that made the runs.
    """
    lines = [f"# {request.title('The frontier: accuracy against demographic parity, by method')}", "",
             f"`{request.command(_NAME, seeds)}`", "",
             "Linear models on the same features of norm at most 1. Methods that know the group have it as a "
             "feature, or thresholds by group; the others decide without it, and each is compared with those that know "
             "as much. Every method tried six settings; moments has one release, whose front takes the place of "
             "settings. For each limit on the gap the setting with the highest mean accuracy on the "
             f"validation part within the limit there was kept. Figures are of the test part: means over {seeds} "
             "seeds, ± half a 95 % t-interval. Runs are seeded, so their epsilon is simulated; with the system's "
             "randomness it would be proved, for these data by public ranges and categories.", "",
             made_with, "", *request.left_out(quick), *(f"- {line}" for line in findings(found.compared)), ""]
    for epsilon in found.fronts["epsilon"].unique():
        lines += [f"## {_named(epsilon)}", "", *_volumes(found, epsilon)]
        for dataset in found.fronts["dataset"].unique():
            lines += _section(out, found, float(epsilon), str(dataset))
    write_text(out / "README.md", "\n".join(lines))


def findings(compared: pd.DataFrame) -> list[str]:
    """Say for each epsilon on how many data sets no method passes ours anywhere, and who does where."""
    lines = []
    for (ours, epsilon), of_epsilon in compared.groupby(["ours", "epsilon"], sort=False):
        passed = of_epsilon[of_epsilon["passes"]]
        datasets = of_epsilon["dataset"].unique()
        free = [name for name in datasets if name not in set(passed["dataset"])]
        others = [f"{method} on {dataset} within {', '.join(map(_limit, own['limit']))}"
                  for dataset, of_data in passed.groupby("dataset", sort=False)
                  for method, own in of_data.groupby("method", sort=False)]
        said = f"{_named(float(str(epsilon)))}: no front passes that of {ours} anywhere by more than its interval on "
        lines.append(f"{said}{len(free)} of {len(datasets)} data sets ({', '.join(free) or 'none'})"
                     + (f"; it is passed by {'; '.join(others)}." if others else "."))
    return lines


def _named(epsilon: float) -> str:
    """Return an epsilon in words."""
    return f"Epsilon {epsilon:g}" if math.isfinite(epsilon) else "Without noise"


def _limit(limit: float) -> str:
    """Return a limit in words."""
    return f"{limit:g}" if math.isfinite(limit) else "no limit"


def _volumes(found: Found, epsilon: float) -> Iterator[str]:
    """Yield the table of hypervolumes at one epsilon: a row for each method, a column for each data set."""
    own = found.volumes[found.volumes["epsilon"] == epsilon]
    datasets = own["dataset"].unique().tolist()
    yield from (f"| hypervolume | {' | '.join(datasets)} |", f"|---|{'---:|' * len(datasets)}")
    for method in own["method"].unique():
        cells = [_cell(over_seeds(own[(own["method"] == method) & (own["dataset"] == name)]["volume"].tolist()))
                 for name in datasets]
        yield f"| {method} | {' | '.join(cells)} |"
    yield ""


def _section(out: Path, found: Found, epsilon: float, dataset: str) -> Iterator[str]:
    """Yield one data set's table and picture at one epsilon, and write the picture."""
    own = found.fronts[(found.fronts["epsilon"] == epsilon) & (found.fronts["dataset"] == dataset)]
    limits = [*found.limits, math.inf]
    yield from (f"### {dataset}, {_named(epsilon).lower()}", "",
                f"| accuracy within | {' | '.join(map(_limit, limits))} |", f"|---|{'---:|' * len(limits)}")
    for method in own["method"].unique():
        rows = own[own["method"] == method]
        yield f"| {method} | {' | '.join(_accuracy(rows, limit) for limit in limits)} |"
    figure = _figure(own, dataset, epsilon)
    save_figure(figure, out)
    write_text(out / f"{figure.name}.csv", to_csv(own))
    yield from ("", f"![{figure.title}]({figure.name}.svg)", "")


def _accuracy(rows: pd.DataFrame, limit: float) -> str:
    """Return the accuracy within a limit, and the gap on the test part."""
    own = rows[rows["limit"] == limit]
    return f"{_cell(over_seeds(own['accuracy'].tolist()))} ({own[GAP].mean():.3f})" if len(own) else ""


def _cell(estimate: Estimate) -> str:
    """Return a mean with half its interval."""
    return f"{estimate.mean:.3f} ± {(estimate.high - estimate.low) / 2:.3f}"


def _figure(own: pd.DataFrame, dataset: str, epsilon: float) -> Figure:
    """Return accuracy against the gap, a line for each method."""
    series = []
    for place, method in enumerate(own["method"].unique()):
        rows = own[own["method"] == method]
        points = [Point(over_seeds(part[GAP].tolist()), over_seeds(part["accuracy"].tolist()))
                  for _, part in rows.groupby("limit")]
        series.append(Series(str(method), place, tuple(sorted(points, key=lambda point: point.x.mean))))
    panel = Panel("", Scale("gap of demographic parity"), Scale("accuracy"), tuple(series))
    title = f"{dataset}, {_named(epsilon).lower()}"
    return Figure(f"{dataset}-{epsilon:g}", title, "Means over seeds.", (panel,))
