"""The comparison as a table for the terminal: what each group gets, and what it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulations.result import Result
from simulations.result import summary as summary_of
from simulations.summary import REFERENCE


def results_table(results: Sequence[Result]) -> RenderableType:
    """The table of one data set's runs."""
    train = results[0].data.train
    return comparison_table(summary_of(results), dict(zip(train.names, train.group_sizes(), strict=True)))


def comparison_table(summary: pd.DataFrame, sizes: dict[str, int]) -> RenderableType:
    """A column for each strategy of one data set (see `simulations.summary`), a row for each group, the smallest first.

    `sizes` are the groups' training records. Fits 80 columns for up to six strategies.
    """
    rows = summary.to_dict("records")
    first = rows[0]
    seeds = f"{first['seeds']} seed{'s, mean and deviation' if first['seeds'] > 1 else ''}"
    title = Text(f"{first['dataset']}: test accuracy by group ({seeds})", "italic")
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("group (records)", no_wrap=True, max_width=20)
    for name in (row['strategy'] for row in rows):
        table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True, min_width=5)
    table.add_row("epsilon", *(_number(row['epsilon'], 2) for row in rows), style="dim")
    table.add_row("guarantee", *(str(row['guarantee']) for row in rows), style="dim", end_section=True)
    table.add_row("all", *(_spread(row, "accuracy") for row in rows))
    groups = sorted(sizes, key=lambda name: sizes[name])
    for place, group in enumerate(groups):
        table.add_row(f"{_short(group, 10)} ({sizes[group]:,})", *(_spread(row, f"accuracy_{group}") for row in rows),
                      style="bold" if place == 0 else "")
    table.add_row("")
    for gap in ("accuracy_parity", "demographic_parity"):
        if not all(math.isnan(row[f"{gap}_mean"]) for row in rows):
            table.add_row(gap.replace("_", " "), *(_spread(row, gap) for row in rows))
    if not math.isnan(first['privacy_cost_gap_mean']):
        worst = [max((row[f"privacy_cost_{group}_mean"], group) for group in groups)[1] for row in rows]
        paid = [row[f"privacy_cost_{group}_mean"] for row, group in zip(rows, worst, strict=True)]
        table.add_row("pays most", *(_short(g, 8) if cost > 0 else "-" for g, cost in zip(worst, paid, strict=True)))
        table.add_row("its cost", *(_number(cost, 3) if cost > 0 else "-" for cost in paid))
        table.add_row("privacy cost gap", *(_number(row['privacy_cost_gap_mean'], 3) for row in rows))
    return Group(title, table, Text(), *verdict(summary, sizes), *unprotected(summary))


def verdict(summary: pd.DataFrame, sizes: dict[str, int]) -> Sequence[Text]:
    """Who pays most for privacy, and which method gives most of it back, in words; nothing without sgd and dpsgd."""
    rows = {row["strategy"]: row for row in summary.to_dict("records")}
    if not {REFERENCE, "dpsgd"} <= set(rows):
        return []
    plain = rows["dpsgd"]
    group = max(sizes, key=lambda name: plain[f"privacy_cost_{name}_mean"])
    cost = f"privacy_cost_{group}_mean"
    lines = [f"Under dpsgd, group {group} ({sizes[group]:,} of {sum(sizes.values()):,} records) pays most for privacy: "
             f"{plain[cost]:.3f} of its accuracy, against {rows[REFERENCE][f'accuracy_{group}_mean']:.3f} under sgd."]
    others = {name: row[cost] for name, row in rows.items() if name not in (REFERENCE, "dpsgd")}
    if others:
        best = min(others, key=lambda name: others[name])
        back = plain[cost] - others[best]
        lines.append(f"{best} gives most of it back: {back:.3f}." if back > 0 else "No method here gives it back.")
    spent = [row["epsilon"] for row in rows.values() if math.isfinite(row["epsilon"])]
    if max(spent, default=0) > 1.1 * min(spent, default=0):
        lines.append("Mind that epsilon differs between methods: set target_epsilon to compare at the same one.")
    return [Text(line) for line in lines]


def unprotected(summary: pd.DataFrame) -> Sequence[Text]:
    """Which strategies looked for their threshold on validation records without noise, in words."""
    names = summary["strategy"][summary["validation_epsilon"].map(math.isinf)]
    if names.empty:
        return []
    return [Text(f"The thresholds of {', '.join(names)} were looked for on validation data, which is not protected: "
                 "set threshold_epsilon to protect it.")]


def _spread(row: Mapping[Any, Any], name: str) -> str:
    """A mean with its standard deviation, or alone for one seed."""
    mean, deviation = _number(row[f"{name}_mean"], 3), row.get(f"{name}_sd", math.nan)
    return mean if math.isnan(deviation) else f"{mean}±{_number(deviation, 3)}"


def _short(name: str, width: int) -> str:
    """A group's name in at most `width` characters."""
    return name if len(name) <= width else f"{name[:width - 1]}…"


def _number(value: float, digits: int) -> str:
    """A number without a leading zero; "inf" for no bound, "-" for no number."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text
