"""What a notebook shows: runs as tables, a picture beside them, and a bar while a run goes on.

The tables say what each method gives and promises, what each group gets, and what was found; the picture shows each
group's accuracy under each method. The bar moves in its cell, and goes when the run ends.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedfair.accounting.figures import up
from fedfair.accounting.ledger_words import as_html, shown
from fedfair.datasets.names import visible
from fedfair.fairness.metrics import Metric
from simulations.results.comparison import Comparison
from simulations.statistics.measures import Marks, test_records

_ROW, _LETTER, _LENGTH, _MOST = 15, 7, 300, 12
_GREY = "#888"  # readable on light and on dark ground
_PAUSE = 0.2  # seconds between two pictures of a bar

Spread = tuple[float, float]
"""A mean and its standard deviation, which is not a number for one run."""


def accuracy_picture(groups: Mapping[str, Mapping[str, Spread]]) -> str:
    """Draw a mark for each group and method, with a line of one deviation to either side, as SVG.

    Args:
        groups: Accuracy by group, then by method; the first twelve groups are drawn.

    Returns:
        The drawing, or "" if nothing was measured.
    """
    from simulations.drawing.figure import COLOURS  # here: the report's own start reads results
    from simulations.drawing.svg import document, element, text

    rows: list[str] = []
    methods = list(next(iter(groups.values()), {}))
    left = 16 + _LETTER * max(map(len, methods), default=0)
    low, high = _ends([spread for of_group in groups.values() for spread in of_group.values()])
    y = 8
    for group in list(groups)[:_MOST]:
        rows.append(text(group, 8, y + 12, font_weight="bold"))
        y += 18
        for place, method in enumerate(methods):
            mean, deviation = groups[group][method]
            if not math.isnan(mean):
                reach = 0.0 if math.isnan(deviation) else deviation
                ends = [left + _LENGTH * (min(max(value, low), high) - low) / (high - low)
                        for value in (mean - reach, mean, mean + reach)]
                rows += [text(method, 16, y + 11), text(f"{mean:.3f}", left + _LENGTH + 12, y + 11),
                         element("line", x1=round(ends[0], 1), x2=round(ends[2], 1), y1=y + 7, y2=y + 7,
                                 stroke=_GREY),
                         element("circle", cx=round(ends[1], 1), cy=y + 7, r=4, fill=COLOURS[place % len(COLOURS)])]
            y += _ROW
        y += 6
    if not rows:
        return ""
    words = element("g", *rows, fill=_GREY, font_family="sans-serif", font_size=12)  # a style would be the page's too
    width = left + _LENGTH + 60
    return f'<div style="max-width:{width}px">{document("Accuracy of each group", width, y, "", words)}</div>'


def _ends(spreads: Sequence[Spread]) -> Spread:
    """Return the ends of the axis: a part of 0 to 1 that holds all marks."""
    means = [mean for mean, _ in spreads if not math.isnan(mean)]
    low, high = min(means, default=0.0), max(means, default=1.0)
    return max(0.0, low - 0.1), min(1.0, high + 0.1)


def runs_html(comparison: Comparison) -> str:
    """Return the tables of runs on one data set, with what is found in sentences."""
    marked, rows, seeds = comparison.marks, comparison.summary.to_dict("records"), comparison.seeds
    title = f"{visible(rows[0]['dataset'])}: {seeds} seed{'s, mean ± deviation' if seeds > 1 else ''}, on test records"
    sizes = comparison.sizes
    tables = [_methods(rows, marked, comparison.in_table), _groups(rows, marked, sizes, test_records(comparison.final))]
    notes = [visible(line) for line in [*comparison.findings(), *marked.legend()]]
    picture = accuracy_picture({visible(group): _accuracies(rows, group) for group in _smallest_first(sizes)})
    return f"{picture}{as_html(title, tables, notes)}"


def _smallest_first(sizes: Mapping[str, int]) -> list[str]:
    """Return the names of groups by their training records."""
    return sorted(sizes, key=lambda name: sizes[name])


def _accuracies(rows: Sequence[Mapping[Any, Any]], group: str) -> dict[str, Spread]:
    """Return a group's mean accuracy and its deviation, by method."""
    name = f"accuracy_{group}"
    return {visible(row["strategy"]): (row[f"{name}_mean"], row.get(f"{name}_sd", math.nan)) for row in rows}


def _methods(rows: Sequence[Mapping[Any, Any]], marked: Marks, metrics: Sequence[Metric]) -> pd.DataFrame:
    """Lay out a row for each method; metrics that no method has are left out."""
    known = [each for each in metrics if any(not math.isnan(row[f"{each.name}_mean"]) for row in rows)]
    return pd.DataFrame([{
        "method": visible(row["strategy"]),
        **{visible(each.title): _figure(row, each.name, marked.of(row["strategy"], each.name), each.digits)
           for each in known},
        "epsilon": shown(row["epsilon"]), "guarantee": row["guarantee"], "delta": up(row["delta"], ".6g"),
        "seeds": row["seeds"]} for row in rows])


def _groups(rows: Sequence[Mapping[Any, Any]], marked: Marks, sizes: Mapping[str, int], tested: Mapping[str, int]
            ) -> pd.DataFrame:
    """Lay out each method's accuracy, a row for each group, the smallest first."""
    return pd.DataFrame([{
        "group": visible(group),
        **{f"accuracy, {visible(row['strategy'])}":
           _figure(row, f"accuracy_{group}", marked.of(row["strategy"], "accuracy", group)) for row in rows},
        "training records": f"{sizes[group]:,}", "test records": f"{tested[group]:,}" if group in tested else "unknown",
        } for group in _smallest_first(sizes)])


def _figure(row: Mapping[Any, Any], name: str, mark: str, digits: int = 3) -> str:
    """Write a mean with its deviation, alone for one seed, and with its mark."""
    mean, deviation = row[f"{name}_mean"], row.get(f"{name}_sd", math.nan)
    if math.isnan(mean):
        return "unknown"
    return f"{mean:.{digits}f}{'' if math.isnan(deviation) else f' ± {deviation:.{digits}f}'}{mark}"


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def bar_of_runs() -> Callable[[int, int, str, int, int], None]:
    """Return what shows how far several runs are, as one bar: a function that `compare` calls (`OnRound`)."""
    move = bar("runs")

    def on_round(done: int, runs: int, name: str, rounds: int, of: int) -> None:
        """Show the share that is done, in rounds of the run at hand."""
        move(done * of + rounds, runs * of)

    return on_round


def bar(name: str) -> Callable[[int, int], None]:
    """Return what shows a run's rounds as a bar below the cell that runs.

    Returns:
        A function of the rounds done and the rounds in all.
    """
    from IPython import display  # a notebook has it

    shown: Any = display
    handle = shown.display(_Shown(name, 0, 1), display_id=True)
    latest = 0.0

    def move(done: int, rounds: int) -> None:
        """Show the rounds done, or nothing once all are."""
        nonlocal latest
        if done >= rounds or time.monotonic() - latest >= _PAUSE:
            latest = time.monotonic()
            handle.update(_Shown(name, done, rounds))

    return move


class _Shown:
    """A bar at one moment."""

    def __init__(self, name: str, done: int, rounds: int) -> None:
        self.name, self.done, self.rounds = name, done, rounds

    def __repr__(self) -> str:
        return f"{self.name}: round {self.done:,} of {self.rounds:,}" if self.done < self.rounds else ""

    def _repr_html_(self) -> str:
        """Show the bar; nothing once the run has ended."""
        if self.done >= self.rounds:
            return " "
        from html import escape

        return (f'<label>{escape(self.name)} <progress value="{self.done}" max="{self.rounds}"></progress> '
                f"round {self.done:,} of {self.rounds:,}</label>")
