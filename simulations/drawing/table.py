"""Tables as data: rows under headings, which pages sort and papers set; their faces in Markdown and in LaTeX.

`terminal.terminal` is their face in a terminal, and the report's templates are that on its page.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedfair.accounting.figures import up
from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate

Cell = str | int | float | Estimate
Row = Sequence[Cell]


class Epsilon(float):
    """An epsilon in a cell: written rounded up."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; `markdown` and `latex` write them, and the report's page shows them.

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
        framed: Whether lines frame it in a terminal.
    """

    name: str = ""
    title: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()
    caption: str = ""
    folded: bool = False
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    foot: Sequence[Row] = ()
    figures: Collection[int] = ()
    framed: bool = True

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
            return said(cell.value)
        return f"{said(cell.value)} ({said(cell.low)} to {said(cell.high)})"
    if isinstance(cell, float):
        if math.isnan(cell):
            return "unknown"
        if isinstance(cell, Epsilon) and math.isfinite(cell):
            return up(cell, ".3f")
        return "∞" if math.isinf(cell) else f"{cell + 0.0:.3f}".replace("-0.000", "0.000")
    return f"{cell:,}" if isinstance(cell, int) else cell


def plain(cell: Cell) -> str | int | float:
    """Return a cell as one value, for sorting and for CSV."""
    return cell.value if isinstance(cell, Estimate) else cell


def markdown(table: Table) -> str:
    """Write the headings and rows of a table, numbers on the right; its title and caption are the page's to write."""
    rules = ["---:" if number else "---" for number in table.numeric()]
    rows = [[said(cell) + table.mark(number, place) for place, cell in enumerate(row)]
            for number, row in enumerate(table.rows)]
    foot = [map(said, row) for row in table.foot]
    return "\n".join([_markdown_line(table.columns), f"|{'|'.join(rules)}|", *map(_markdown_line, [*rows, *foot])])


def _markdown_line(cells: Iterable[str]) -> str:
    """Write one row; a bar in a cell does not end it."""
    return " | ".join(["", *(cell.replace("|", r"\|") for cell in cells), ""]).strip()


_ESCAPES = str.maketrans({"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
                          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
                          "∞": r"$\infty$"})


def latex(table: Table) -> str:
    """Write a table environment of the package booktabs; an interval stands after its mean."""
    kinds = "".join("r" if number else "l" for number in table.numeric())
    rows = [[_cell(cell) + table.mark(number, place) for place, cell in enumerate(row)]
            for number, row in enumerate(table.rows)]
    foot = [[*map(_cell, row)] for row in table.foot]
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"  \centering",
             rf"  \caption{{{_escaped(table.title)}. {_escaped(table.caption)}}}",
             rf"  \label{{tab:{table.name}}}",
             rf"  \begin{{tabular}}{{{kinds}}}", r"    \toprule",
             _latex_line([*map(_escaped, table.columns)]), r"    \midrule", *map(_latex_line, rows),
             *([r"    \midrule"] if foot else []), *map(_latex_line, foot),
             r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    """Write a cell; an interval by its ends, since it need not be symmetric around its mean."""
    if isinstance(cell, Estimate) and not math.isnan(cell.low):
        return f"{_escaped(said(cell.value))} [{said(cell.low)}, {said(cell.high)}]"
    return _escaped(said(cell))


def _latex_line(cells: list[str]) -> str:
    """Write one row."""
    return f"    {' & '.join(cells)} \\\\"


def _escaped(text: str) -> str:
    """Escape text for LaTeX."""
    return visible(text).translate(_ESCAPES)
