"""Tables for pages and cards, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from simulations.tables.table import Table, said


def markdown(table: Table) -> str:
    """Write the headings and rows of a table, numbers on the right; its title and caption are the page's to write."""
    rules = ["---:" if number else "---" for number in table.numeric()]
    rows = [[said(cell) + table.mark(number, place) for place, cell in enumerate(row)]
            for number, row in enumerate(table.rows)]
    foot = [map(said, row) for row in table.foot]
    return "\n".join([_line(table.columns), f"|{'|'.join(rules)}|", *map(_line, [*rows, *foot])])


def _line(cells: Iterable[str]) -> str:
    """Write one row; a bar in a cell does not end it."""
    return " | ".join(["", *(cell.replace("|", r"\|") for cell in cells), ""]).strip()
