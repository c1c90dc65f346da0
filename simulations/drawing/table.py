"""Tables as data: rows under headings, which pages sort and papers set; their faces in terminals, Markdown and LaTeX.

The report's templates are their face on its page.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import HEAVY_HEAD
from rich.table import Table as Grid
from rich.text import Text

from fedfair.accounting.figures import up
from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate

Cell = str | int | float | Estimate
Row = Sequence[Cell]
_NARROWEST = 78  # of a table with words below it
_BESIDE = 2  # columns of intervals fit into 80 characters beside their figures; more have them below, or names vanish


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
        marks: Marks by row and column (see `simulations.statistics.measures`).
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
    rows = [[_latex_cell(cell) + table.mark(number, place) for place, cell in enumerate(row)]
            for number, row in enumerate(table.rows)]
    foot = [[*map(_latex_cell, row)] for row in table.foot]
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"  \centering",
             rf"  \caption{{{_escaped(table.title)}. {_escaped(table.caption)}}}",
             rf"  \label{{tab:{table.name}}}",
             rf"  \begin{{tabular}}{{{kinds}}}", r"    \toprule",
             _latex_line([*map(_escaped, table.columns)]), r"    \midrule", *map(_latex_line, rows),
             *([r"    \midrule"] if foot else []), *map(_latex_line, foot),
             r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell) -> str:
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


class Coloured(str):
    """A cell that terminals show in a colour."""

    def __new__(cls, words: str, colour: str = "") -> Coloured:
        """Return words with their colour; without one they are plain."""
        made = super().__new__(cls, words)
        made.colour = colour
        return made

    colour: str


def terminal(table: Table) -> Grid:
    """Lay out a table: numbers on the right, an interval after its figure or below it, no name read as markup."""
    title, caption = (Text(visible(words)) if words else None for words in (table.title, table.caption))
    grid = Grid(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left",
                min_width=_NARROWEST if caption else None, box=HEAVY_HEAD if table.framed else None,
                show_header=any(table.columns), header_style="bold",
                padding=(0, 1) if table.framed else (0, 1, 0, 0))
    for column, number in zip(table.columns, table.numeric(), strict=True):
        grid.add_column(Text(visible(column)), justify="right" if number else "left", no_wrap=number and table.framed)
    several = sum(isinstance(cell, Estimate) for cell in next(iter(table.rows), ())) > _BESIDE
    for row in table.rows:
        grid.add_row(*(_terminal_cell(cell, "\n" if several else "  ") for cell in row))
    return grid


def _terminal_cell(cell: Cell, gap: str) -> Text:
    """Write a cell, with a gap between a figure and its interval."""
    if isinstance(cell, Estimate):
        return Text.assemble(cell.text, (f"{gap}{cell.interval}", "dim") if cell.interval else "")
    return Text(visible(said(cell)), cell.colour if isinstance(cell, Coloured) else "")
