"""Tables for papers, in LaTeX with the package booktabs."""

from __future__ import annotations

import math

from fedfair.datasets.names import visible
from simulations.statistics.estimates import Estimate
from simulations.tables.table import Cell, Table, said

_ESCAPES = str.maketrans({"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
                          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
                          "∞": r"$\infty$"})


def latex(table: Table) -> str:
    """Write a table environment; an interval stands after its mean."""
    kinds = "".join("r" if number else "l" for number in table.numeric())
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"  \centering",
             rf"  \caption{{{_escaped(table.title)}. {_escaped(table.caption)}}}",
             rf"  \label{{tab:{table.name}}}",
             rf"  \begin{{tabular}}{{{kinds}}}", r"    \toprule",
             _line([_escaped(column) for column in table.columns]), r"    \midrule",
             *(_line([_cell(cell) + table.mark(number, place) for place, cell in enumerate(row)])
               for number, row in enumerate(table.rows)),
             *([r"    \midrule", *(_line([_cell(cell) for cell in row]) for row in table.foot)] if table.foot else []),
             r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    """Write a cell; an interval by its ends, since it need not be symmetric around its mean."""
    if isinstance(cell, Estimate) and not math.isnan(cell.low):
        return f"{_escaped(said(cell.mean))} [{said(cell.low)}, {said(cell.high)}]"
    return _escaped(said(cell))


def _line(cells: list[str]) -> str:
    """Write one row."""
    return f"    {' & '.join(cells)} \\\\"


def _escaped(text: str) -> str:
    """Escape text for LaTeX."""
    return visible(text).translate(_ESCAPES)
