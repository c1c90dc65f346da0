"""A comparison as a table for the terminal: what each group gets, and what it pays."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from fedfair.accounting.figures import up
from fedfair.datasets.columns.kinds import LEFT_OUT, Column
from fedfair.datasets.names import visible
from fedfair.fairness.metrics import Metric, find, shown_in
from simulations.drawing.table import Table
from simulations.results.comparison import Comparison
from simulations.statistics.measures import BEST, DOUBTFUL, NONE, Marks, measures
from simulations.statistics.over_seeds import constant_models

_MOST = 10_000  # columns of a terminal


def results_table(comparison: Comparison) -> RenderableType:
    """Lay out one data set's runs, below what must be known first: models that predict one class."""
    first, said = constant_models(measures(comparison.final)), comparison.findings()
    table = comparison_table(comparison.summary, comparison.sizes, comparison.marks, comparison.in_table)
    return Group(*(Text(visible(line), "yellow") for line in first), table,
                 *(Text(visible(line)) for line in [*said[len(first):], *comparison.notes()]))


def comparison_table(summary: pd.DataFrame, sizes: dict[str, int], marked: Marks = NONE,
                     metrics: Sequence[Metric] = ()) -> RenderableType:
    """Lay out one data set's strategies (see `statistics.summary`), a column each, with a row for each group, smallest
    first.

    `sizes` are the groups' training records; `metrics`, by default those of `METRICS`, get a row each. Strategies for
    which the terminal has no room go into another table below.
    """
    rows = summary.to_dict("records")
    several = rows[0]["seeds"] > 1
    seeds = f"{rows[0]['seeds']} seed{'s, mean and deviation' if several else ''}"
    title = Text(f"{visible(rows[0]['dataset'])}: test accuracy by group ({seeds})", "italic")
    metrics = metrics or shown_in("table")
    return Group(title, _Strategies(rows, sizes, marked, metrics), *(Text(line, "dim") for line in marked.legend()))


def columns_table(name: str, columns: Sequence[Column]) -> Table:
    """Lay out how the columns of a file are read."""
    rows = [(column.name, f"{column.kind}, left out" if column.kind in LEFT_OUT else column.kind, column.values,
             column.missing) for column in columns]
    return Table("", f"{name}: columns", ("column", "taken as", "values", "missing"), rows)


@dataclass(frozen=True)
class _Strategies:
    """The columns of all strategies: beside each other as far as there is room, with whole names if all have it."""

    rows: Sequence[Mapping[Any, Any]]
    sizes: dict[str, int]
    marked: Marks
    metrics: Sequence[Metric]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the columns out for a console's width."""
        tables = [_strategies_table(self.rows, self, wide=True)]
        room, number = options.update(max_width=_MOST), len(self.rows)
        while number and any(Measurement.get(console, room, part).maximum > options.max_width for part in tables):
            tables = [_strategies_table(self.rows[start : start + number], self)
                      for start in range(0, len(self.rows), number)]
            number -= 1
        for table in tables:
            yield table
            yield Text()


def _strategies_table(rows: Sequence[Mapping[Any, Any]], of: _Strategies, wide: bool = False) -> Grid:
    """Lay out the columns of some strategies; names are cut and broken unless it may be `wide`."""
    sizes, marked = of.sizes, of.marked
    table, cut = Grid(box=None, header_style="bold", padding=(0, 1, 0, 0)), 40 if wide else 10
    table.add_column("group (records)", no_wrap=True, max_width=None if wide else 20)
    for row in rows:
        name = row["strategy"] if wide else row["strategy"].replace("-", "-\n")
        table.add_column(Text(visible(name, keep="\n")), justify="right", no_wrap=True, min_width=5)
    if any(row.get("constant_seeds", 0) > 0 for row in rows):
        table.add_row("predicts one class", *map(_constant, rows))
    table.add_row("epsilon", *(_epsilon(row["epsilon"]) for row in rows), style="dim")
    table.add_row("guarantee", *(str(row["guarantee"]) for row in rows), style="dim", end_section=True)
    if not math.isnan(rows[0].get("majority_rate_mean", math.nan)):
        table.add_row("majority class", *(_number(row["majority_rate_mean"], 3) for row in rows), style="dim")
    table.add_row("all", *(_marked(row, "accuracy", marked) for row in rows))
    groups = sorted(sizes, key=lambda name: sizes[name])
    for index, group in enumerate(groups):
        held = f" ({sizes[group]:,})" if sizes[group] else ""  # where the number is not known
        table.add_row(Text(f"{_short(group, cut)}{held}"),
                      *(_marked(row, "accuracy", marked, group) for row in rows), style="bold" if index == 0 else "")
    table.add_row("")
    for metric in (each for each in of.metrics if each.name != "accuracy" and each.of != "runs"):
        name = metric.name
        if not all(math.isnan(row.get(f"{name}_mean", math.nan)) for row in rows) or _is_unknown(name, rows):
            table.add_row(Text(visible(metric.title)), *(_marked(row, name, marked, unknown="unknown") for row in rows))
    if not math.isnan(rows[0]["privacy_cost_gap_mean"]):
        paid = [_most_paid(row, groups) for row in rows]
        table.add_row("largest mean cost", *(Text(_short(group, cut - 2) if cost > 0 else "-") for cost, group in paid))
        table.add_row("its cost", *(_number(cost, 3) if cost > 0 else "-" for cost, _ in paid))
        table.add_row("privacy cost gap", *(_marked(row, "privacy_cost_gap", marked) for row in rows))
    return table


def _is_unknown(gap: str, rows: Sequence[Mapping[Any, Any]]) -> bool:
    """Return whether a gap is unknown although there is a favourable class."""
    return gap.startswith("equal") and not all(math.isnan(row["demographic_parity_mean"]) for row in rows)


def _constant(row: Mapping[Any, Any]) -> Text:
    """Format how many of a method's seeds predict one class alone."""
    number = row.get("constant_seeds", math.nan)
    return Text("-" if math.isnan(number) else f"{number:.0f} of {row['seeds']}", "yellow" if number > 0 else "")


def _most_paid(row: Mapping[Any, Any], groups: Iterable[str]) -> tuple[float, str]:
    """Return the largest privacy cost and the group that pays it; not a number if none is known."""
    costs = ((row[f"privacy_cost_{group}_mean"], group) for group in groups)
    return max((pair for pair in costs if not math.isnan(pair[0])), default=(math.nan, ""))


def _marked(row: Mapping[Any, Any], measure: str, marked: Marks, group: str | None = None, unknown: str = "-") -> Text:
    """Format a mean with its standard deviation, alone for one seed, and with its mark."""
    name = measure if group is None else f"{measure}_{group}"
    value, deviation = row.get(f"{name}_mean", math.nan), row.get(f"{name}_sd", math.nan)
    if math.isnan(value):
        return Text(unknown)
    mark = marked.of(row["strategy"], measure, group)
    digits = find(measure).digits
    text = _number(value, digits)
    text = text if math.isnan(deviation) else f"{text}±{_number(deviation, digits)}"
    return Text(text + mark, {BEST: "green", DOUBTFUL: "yellow"}.get(mark, ""))


def _short(name: str, width: int) -> str:
    """Shorten a group's name to at most `width` characters."""
    name = visible(name)
    return name if len(name) <= width else f"{name[:width - 1]}…"


def _number(value: float, digits: int) -> str:
    """Format a number without a leading zero; "inf" for no bound, "-" for no number."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    return _without_zero(f"{value:.{digits}f}")


def _epsilon(value: float) -> str:
    """Format an epsilon as `_number` does, with two decimals, rounded up."""
    return _without_zero(up(value, ".2f"))


def _without_zero(text: str) -> str:
    """Leave out the zero before the point."""
    return re.sub(r"^(-?)0\.", r"\1.", text)
