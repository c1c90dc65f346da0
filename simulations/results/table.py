"""A comparison as a table for the terminal: what each group gets, and what it pays."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.datasets.columns import LEFT_OUT, Column
from fedfair.datasets.names import visible
from simulations.results.measures import measures
from simulations.results.paired_tests import comparisons
from simulations.results.reference import REFERENCE, is_reference
from simulations.results.result import Result, identified
from simulations.results.result import summary as summary_of
from simulations.results.statistics import findings
from simulations.results.summary import final_test


def results_table(results: Sequence[Result]) -> RenderableType:
    """Lay out one data set's runs."""
    train = results[0].data.train
    table = comparison_table(summary_of(results), dict(zip(train.names, train.group_sizes(), strict=True)))
    measured = measures(final_test(identified(results)))
    lines = [*large_deltas(result.ledger for result in results), *corrected(results),
             *findings(measured, comparisons(measured))]
    return Group(table, *(Text(visible(line)) for line in lines))


def large_deltas(ledgers: Iterable[Ledger]) -> list[str]:
    """Warn, once for each, of deltas that are above one over the number of training records."""
    warnings = dict.fromkeys(ledger.delta_warning() for ledger in ledgers)
    return [f"Warning: {warning}." for warning in warnings if warning]


def corrected(results: Sequence[Result]) -> list[str]:
    """Say for which class the decisions of runs with a threshold were corrected.

    Class 1 of two may not be the one that people want.
    """
    classes = {result.data.train.labels[result.threshold.rule.favourable] for result in results if result.threshold}
    return [f"Thresholds equalise the rate of {label!r}; set favourable to choose another class."
            for label in sorted(classes)]


def comparison_table(summary: pd.DataFrame, sizes: dict[str, int]) -> RenderableType:
    """Lay out one data set's strategies (see `simulations.results.summary`), a column each, with a row for each group,
    smallest first.

    `sizes` are the groups' training records. Fits 80 columns: further strategies go into another table below.
    """
    rows = summary.to_dict("records")
    several = rows[0]["seeds"] > 1
    seeds = f"{rows[0]['seeds']} seed{'s, mean and deviation' if several else ''}"
    title = Text(f"{visible(rows[0]['dataset'])}: test accuracy by group ({seeds})", "italic")
    width = 5 if several else 6
    tables = [part for start in range(0, len(rows), width)
              for part in (_strategies_table(rows[start : start + width], sizes), Text())]
    return Group(title, *tables, *verdict(summary, sizes), *unequal_epsilons(summary), *searched(summary))


def verdict(summary: pd.DataFrame, sizes: dict[str, int]) -> Sequence[Text]:
    """Say who pays most for privacy, which method recovers most of it, and how much.

    Empty without sgd and dpsgd, or if no group's cost is known.
    """
    rows = {row["strategy"]: row for row in summary.to_dict("records")}
    if not {REFERENCE, "dpsgd"} <= set(rows):
        return []
    plain = rows["dpsgd"]
    paid, group = _most_paid(plain, sizes)
    if math.isnan(paid):
        return []
    unknown = [name for name in sizes if math.isnan(plain[f"privacy_cost_{name}_mean"])]
    nothing = [Text(f"The cost of group {visible(name)} is unknown: it has no test record.") for name in unknown]
    if paid <= 0:
        which = " that has test records" if unknown else ""
        return [Text(f"Under dpsgd no group{which} has a lower accuracy than under sgd."), *nothing]
    lines = [f"Under dpsgd, group {group} ({sizes[group]:,} of {sum(sizes.values()):,} records) pays most for privacy: "
             f"{paid:.3f} of its accuracy, against {rows[REFERENCE][f'accuracy_{group}_mean']:.3f} under sgd."]
    others = {name: cost for name, row in rows.items() if not (is_reference(name) or name == "dpsgd")
              and not math.isnan(cost := row[f"privacy_cost_{group}_mean"])}
    if others:
        best = min(others, key=lambda name: others[name])
        back, most = paid - others[best], ", more than any other method" if len(others) > 1 else ""
        lines.append(f"{best} recovers {back:.3f}{most}." if back > 0 else "No method recovers any of it.")
    return [*(Text(visible(line)) for line in lines), *nothing]


def unequal_epsilons(summary: pd.DataFrame) -> Sequence[Text]:
    """Warn if the largest finite epsilon is more than a tenth above the smallest."""
    spent = [epsilon for epsilon in summary["epsilon"] if math.isfinite(epsilon)]
    if max(spent, default=0) <= 1.1 * min(spent, default=0):
        return []
    return [Text("Epsilon differs between methods: set target_epsilon to compare them at the same epsilon.")]


def searched(summary: pd.DataFrame) -> Sequence[Text]:
    """Say what the search for thresholds cost the validation records: their epsilon is not that of the table."""
    spent = summary.set_index("strategy")["validation_epsilon"]
    plain, noisy = spent[spent.map(math.isinf)], spent[spent.map(math.isfinite) & (spent > 0)]
    lines = [f"The thresholds of {', '.join(plain.index)} were searched on validation data, which is not protected: "
             "set threshold_epsilon to protect it."] if len(plain) else []
    for name, epsilon in noisy.items():
        lines.append(f"The threshold of {name} was searched on validation data, at an epsilon of {up(epsilon, '.2f')} "
                     "for its records.")
    return [Text(visible(line)) for line in lines]


def columns_table(name: str, columns: Sequence[Column]) -> Table:
    """Lay out how the columns of a file are read."""
    table = Table(title=Text(f"{visible(name)}: columns"))
    for heading in ("column", "taken as", "values", "missing"):
        table.add_column(heading, justify="right" if heading == "missing" else "left")
    for column in columns:
        kind = f"{column.kind}, left out" if column.kind in LEFT_OUT else column.kind
        table.add_row(Text(visible(column.name)), kind, Text(visible(column.values)), f"{column.missing:,}")
    return table


def _strategies_table(rows: Sequence[Mapping[Any, Any]], sizes: dict[str, int]) -> Table:
    """Lay out the columns of some strategies."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("group (records)", no_wrap=True, max_width=20)
    for row in rows:
        table.add_column(Text(row["strategy"].replace("-", "-\n")), justify="right", no_wrap=True, min_width=5)
    table.add_row("epsilon", *(_epsilon(row["epsilon"]) for row in rows), style="dim")
    table.add_row("guarantee", *(str(row["guarantee"]) for row in rows), style="dim", end_section=True)
    table.add_row("all", *(_spread(row, "accuracy") for row in rows))
    groups = sorted(sizes, key=lambda name: sizes[name])
    for index, group in enumerate(groups):
        table.add_row(Text(f"{_short(group, 10)} ({sizes[group]:,})"),
                      *(_spread(row, f"accuracy_{group}") for row in rows), style="bold" if index == 0 else "")
    table.add_row("")
    for gap in ("accuracy_parity", "demographic_parity"):
        if not all(math.isnan(row[f"{gap}_mean"]) for row in rows):
            table.add_row(gap.replace("_", " "), *(_spread(row, gap) for row in rows))
    if not math.isnan(rows[0]["privacy_cost_gap_mean"]):
        paid = [_most_paid(row, groups) for row in rows]
        table.add_row("pays most", *(Text(_short(group, 8) if cost > 0 else "-") for cost, group in paid))
        table.add_row("its cost", *(_number(cost, 3) if cost > 0 else "-" for cost, _ in paid))
        table.add_row("privacy cost gap", *(_number(row["privacy_cost_gap_mean"], 3) for row in rows))
    return table


def _most_paid(row: Mapping[Any, Any], groups: Iterable[str]) -> tuple[float, str]:
    """Return the largest privacy cost and the group that pays it; not a number if none is known."""
    costs = ((row[f"privacy_cost_{group}_mean"], group) for group in groups)
    return max((pair for pair in costs if not math.isnan(pair[0])), default=(math.nan, ""))


def _spread(row: Mapping[Any, Any], name: str) -> str:
    """Format a mean with its standard deviation, or alone for one seed."""
    mean, deviation = _number(row[f"{name}_mean"], 3), row.get(f"{name}_sd", math.nan)
    return mean if math.isnan(deviation) else f"{mean}±{_number(deviation, 3)}"


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
