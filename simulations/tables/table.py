"""Tables as data: rows under headings, which pages sort, terminals print and papers set."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedfair.accounting.figures import up
from simulations.statistics.estimates import Estimate

Cell = str | int | float | Estimate


class Epsilon(float):
    """An epsilon in a cell: written rounded up."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; `simulations.tables` has a face for terminals, Markdown and LaTeX, the report's page one.

    Attributes:
        name: Name of its files.
        title: What it shows.
        columns: Headings.
        rows: Cells of every row; one that is an `Estimate` shows its interval.
        caption: Words below it.
        folded: Whether pages show it only when asked.
        marks: Marks by row and column (see `simulations.statistics.marks`).
        foot: Rows that stay below when others are sorted.
        figures: Places of columns whose figures are written as text already; they stand on the right, as numbers do.
        colours: Colours by row and column, where a cell warns.
    """

    name: str = ""
    title: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    caption: str = ""
    folded: bool = False
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    foot: Sequence[Sequence[Cell]] = ()
    figures: Collection[int] = ()
    colours: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def mark(self, row: int, column: int) -> str:
        """Return the mark of a cell, or nothing."""
        return self.marks.get((row, column), "")

    def numeric(self) -> list[bool]:
        """Say of each column whether it holds numbers."""
        return [place in self.figures or any(not isinstance(row[place], str) for row in self.rows)
                for place in range(len(self.columns))]


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
