"""The face of a `Table` in a terminal."""

from __future__ import annotations

from rich.box import HEAVY_HEAD
from rich.table import Table as Grid
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from simulations.drawing.table import Cell, Table, said

_NARROWEST = 78  # of a table with words below it
_BESIDE = 2  # columns of intervals fit into 80 characters beside their figures; more have them below, or names vanish


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
        grid.add_row(*(_cell(cell, "\n" if several else "  ") for cell in row))
    return grid


def _cell(cell: Cell, gap: str) -> Text:
    """Write a cell, with a gap between a figure and its interval."""
    if isinstance(cell, Estimate):
        return Text.assemble(cell.text, (f"{gap}{cell.interval}", "dim") if cell.interval else "")
    return Text(visible(said(cell)), cell.colour if isinstance(cell, Coloured) else "")
