"""Tables as data: rows under headings, which pages sort, terminals print and papers set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedfair.accounting.figures import up
from simulations.statistics.estimates import Estimate

Cell = str | int | float | Estimate


class Epsilon(float):
    """An epsilon in a cell: written rounded up."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; `name` is that of its files. A cell that is an `Estimate` shows its interval.

    `marks` are by row and column (see `simulations.statistics.marks`). Rows of the `foot` stay below when others are
    sorted.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    folded: bool = False
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    foot: Sequence[Sequence[Cell]] = ()

    def mark(self, row: int, column: int) -> str:
        """Return the mark of a cell, or nothing."""
        return self.marks.get((row, column), "")


def said(cell: Cell) -> str:
    """Write a cell: three decimals, the interval after the mean, "∞" for an infinite epsilon, "unknown" for NaN."""
    if isinstance(cell, Estimate):
        if math.isnan(cell.low):
            return said(cell.mean)
        return f"{said(cell.mean)} ({said(cell.low)} to {said(cell.high)})"
    if isinstance(cell, float):
        if math.isnan(cell):
            return "unknown"
        if isinstance(cell, Epsilon) and math.isfinite(cell):
            return up(cell, ".3f")
        return "∞" if math.isinf(cell) else f"{cell + 0.0:.3f}".replace("-0.000", "0.000")
    return f"{cell:,}" if isinstance(cell, int) else cell


def plain(cell: Cell) -> str | int | float:
    """Return a cell as one value, for sorting and for CSV."""
    return cell.mean if isinstance(cell, Estimate) else cell
