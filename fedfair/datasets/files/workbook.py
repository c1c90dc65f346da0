"""Reading a workbook: one of its sheets, below a row with the names of the columns.

Merged cells and the row of names are the layout of a sheet, which is public as the format of every file is: what is
refused for them is refused before a record is looked at, whatever the records hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pandas as pd

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.convention import ALL, Asked
from fedfair.datasets.columns.tidy import with_columns

SUFFIXES = (".xlsx", ".xlsm")
_END_OF_CELLS = b"</sheetData>"
_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^>]*ref=\"([A-Z]+)(\d+):([A-Z]+)(\d+)\"")
_COMPUTED = re.compile(rb"<(?:\w+:)?f[\s/>]|\st=\"e\"")
_MARK = 64  # bytes, more than what it finds has
_PORTION = 2**20  # bytes that are looked through at a time
_NAMED = 5  # columns, or fewer, are named


def read_workbook(path: Path, asked: Asked) -> pd.DataFrame:
    """Read the only sheet of a workbook, or the one that was asked for.

    Args:
        path: File.
        asked: What the user says: the sheet, and the number of the row that has the names of the columns.

    Returns:
        The rows below the names, each value of the type that its own cell has; cells beyond the last name are none.

    Raises:
        ValueError: If the sheet is not clear, the row of names is none, or cells below it are merged.
    """
    import openpyxl

    first = (asked.header_row or 1) - 1
    with path.open("rb") as file, closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book:
        sheets = {sheet.title: cells for sheet in book.worksheets if len(cells := _cells(sheet))}
        full = {name: cells for name, cells in sheets.items() if len(cells) > first + 1}
        chosen = next(iter(full)) if asked.sheet is None and len(full) == 1 else asked.sheet
        if chosen not in full:
            below = f" below row {asked.header_row}" if asked.header_row else ""
            raise ValueError(f"{path} has the sheets {', '.join(map(repr, full)) or 'without records only'}{below}: "
                             f"say which with the setting sheet{', or another header_row' if below else ''}")
        cells, part = full[str(chosen)], str(book[chosen]._worksheet_path)
    _refuse_title([*cells.iloc[first]], path, first + 1)
    cells = cells.loc[:, :cells.iloc[first].last_valid_index()]  # a record may have cells beside the table
    values = [*cells.iloc[first]]
    names = [spelled(str(value)) if filled else f"Unnamed: {place}"
             for place, (value, filled) in enumerate(zip(values, cells.iloc[first].notna(), strict=True))]
    _refuse_merged(path, part, names, first + 1)
    rows = cells.iloc[first + 1:].set_axis(names, axis=1).reset_index(drop=True)
    return with_columns(rows, {name: _written(rows[name], name, asked) for name in names})


class _Percent(NamedTuple):
    """Value of a cell that its sheet shows in per cent: .4 for 40 %."""

    value: float


def _cells(sheet: Any) -> pd.DataFrame:
    """Return the values of a sheet to its last row that has one, by its own rows and columns; None for no value."""
    sheet.reset_dimensions()  # which some programs write wrongly
    rows = [[*map(_value, row)] for row in sheet.iter_rows()]
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    return pd.DataFrame(rows, dtype=object)


def _value(cell: Any) -> Any:
    """Return the value of a cell, None for an error: whole numbers are whole, and those in per cent say so."""
    value = cell.value
    if value in (None, "") or cell.data_type == "e":
        return None
    if cell.data_type != "n" or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if _is_percent(cell.number_format):
        return _Percent(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@lru_cache(maxsize=256)
def _is_percent(shown: str) -> bool:
    """Return whether a format of numbers shows per cent; a sign in quotes is one that somebody wrote."""
    return "%" in re.sub(r'"[^"]*"|\\.|\[[^]]*\]', "", shown)


def _written(column: pd.Series, name: str, asked: Asked) -> pd.Series:
    """Return a column in which a number in per cent is text, as in other files: a plain number does not say so."""
    said = dict(asked.decimal)
    mark = said.get(name, said.get(ALL, "."))
    return column.map(lambda value: f"{100 * value.value:.15g}%".replace(".", mark) if isinstance(value, _Percent) else
                      value)


def refuse_header_row(path: Path, asked: Asked) -> None:
    """Raise `ValueError` if a row of names is said of a file that is no workbook.

    Args:
        path: File.
        asked: What the user says of it.
    """
    if asked.header_row is not None and path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"header_row is {asked.header_row}, but {path} is no workbook: remove what stands above the "
                         "names of the columns, and leave header_row out")


def refuse_uncomputed(path: Path, needed: Collection[str]) -> None:
    """Raise `ValueError` for new rows of which a cell that a model needs is a formula without a value, or an error.

    A program that writes formulas does not compute them. In the table that trained the model such a cell was missing; a
    new row would be decided by that in silence. #N/A says that a value is not available, and is missing.

    Args:
        path: File; one that is no workbook has no such cells.
        needed: Names of the columns that the model needs.
    """
    if path.suffix.lower() not in SUFFIXES or not _has_formulas(path):
        return
    import openpyxl

    written, computed = (openpyxl.load_workbook(path, read_only=True, data_only=only) for only in (False, True))
    with closing(written), closing(computed):
        for sheet in written.worksheets:
            named: dict[int, str] = {}
            rows = zip(sheet.iter_rows(), computed[sheet.title].iter_rows(), strict=False)
            for own, value in chain.from_iterable(zip(*row, strict=False) for row in rows):
                if isinstance(value.value, str) and spelled(value.value) in needed:
                    named[own.column] = spelled(value.value)
                elif own.value is not None and own.column in named and _is_uncomputed(own, value):
                    raise ValueError(f"column {named[own.column]!r} of {path} has {value.value or 'no value'} in cell "
                                     f"{own.coordinate}, of a formula that is not computed: open the file in a "
                                     "spreadsheet program and save it, mend the formula, or empty the cell")


def _has_formulas(path: Path) -> bool:
    """Return whether a cell of a workbook is a formula or an error, by its bytes, which takes less time."""
    with ZipFile(path) as book:
        for part in filter(re.compile(r"xl/.*\.xml").fullmatch, book.namelist()):
            with book.open(part) as file:
                before = b""
                while portion := file.read(_PORTION):
                    if _COMPUTED.search(before + portion):
                        return True
                    before = portion[-_MARK:]
    return False


def _is_uncomputed(own: Any, value: Any) -> bool:
    """Return whether a cell is a formula without a value, or an error but for a value that is not available."""
    return bool(own.data_type == "f" and value.value is None) or (value.data_type == "e" and value.value != "#N/A")


def _refuse_title(values: Sequence[Any], path: Path, row: int) -> None:
    """Raise `ValueError` if the row of names has a single value, or more gaps than values, as a title has."""
    filled = [place for place, missing in enumerate(pd.isna(pd.Series(values, dtype=object))) if not missing]
    if len(filled) > 1 and 2 * len(filled) > filled[-1] + 1:
        return
    raise ValueError(f"row {row} of {path} is no row of names: {len(filled)} of its cells "
                     f"{'has' if len(filled) == 1 else 'have'} a value, as in a title. Say in which row the names of "
                     "the columns stand, for example header_row = 3, or remove what stands above them")


def _refuse_merged(path: Path, part: str, names: Sequence[str], row: int) -> None:
    """Raise `ValueError` if cells are merged in the row of names or below; those above, as of titles, may be."""
    merged = [(first, last, f"{first}{top}:{last}{bottom}") for first, top, last, bottom in _merged(path, part)
              if bottom >= row]
    if not merged:
        return
    columns = sorted({*chain.from_iterable(range(_place(first), _place(last) + 1) for first, last, _ in merged)})
    named = [repr(names[place]) for place in columns if place < len(names)] or ["beside the table"]
    shown = ", ".join(named[:_NAMED]) + (", ..." if len(named) > _NAMED else "")
    raise ValueError(f"column {shown} of {path} has merged cells ({merged[0][2]}{', ...' if len(merged) > 1 else ''}), "
                     "of which only the first has a value, so that the others would count as missing: unmerge them, "
                     "and fill in every cell (in Excel: Unmerge Cells; Go To Special, Blanks; = and the cell above; "
                     "Ctrl+Enter)")


def _merged(path: Path, part: str) -> list[tuple[str, int, str, int]]:
    """Return the merged cells of a sheet, each by its first column and row and its last ones.

    They stand behind all cells of the sheet's part, whose bytes are looked through without being parsed again.
    """
    text = b""
    with ZipFile(path) as book, book.open(part.lstrip("/")) as file:
        while portion := file.read(_PORTION):
            text += portion
            if _END_OF_CELLS not in text:
                text = text[-len(_END_OF_CELLS):]
    return [(first.decode(), int(top), last.decode(), int(bottom))
            for first, top, last, bottom in _MERGED.findall(text)]


def _place(letters: str) -> int:
    """Return the place of a column by its letters, from 0."""
    place = 0
    for letter in letters:
        place = 26 * place + ord(letter) - ord("A") + 1
    return place - 1
