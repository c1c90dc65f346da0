"""How the cells of a table are read: what the user asked for, and what was found in all columns together.

Bands of a number make groups of it: "under 25", "25 to under 60", "60 and over".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Decimal = Literal[".", ","]
Capitals = Literal["refuse", "same", "different"]
Quantity = Literal["date", "duration", "time", "percentage"]
ALL = ""
"""Name of no column: what is asked for all columns."""


@dataclass(frozen=True)
class Asked:
    """What the user says of a table; what is left out is found, or refused if it is doubtful.

    Args:
        separator: What stands between two values of a line; " " for blanks.
        encoding: Name of the text's encoding.
        sheet: Sheet of a workbook.
        decimal: Decimal mark by column, or of all columns (`ALL`).
        missing_marks: Texts that count as missing in every column; none at all if it is empty.
        answers: Columns in which NA, None and the like are answers, and only an empty cell and `missing_marks` missing.
        capitals: What names of labels and groups that differ by capitals alone are.
        categorical: Columns of codes, which are categories even if they are numbers.
        numeric: Columns of numbers, even if they look like codes, identifiers or dates.
        bands: Lower ends of all bands but the first, by column, or of the only protected column (`ALL`).
        quantities: Which of `columns.quantities.UNITS` columns hold, by column.
        header_row: Number of the row of a workbook, from 1, that has the names of the columns.
    """

    separator: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    decimal: tuple[tuple[str, Decimal], ...] = ()
    missing_marks: tuple[str, ...] | None = None
    capitals: Capitals = "refuse"
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    bands: tuple[tuple[str, tuple[float, ...]], ...] = ()
    header_row: int | None = None
    quantities: tuple[tuple[str, Quantity], ...] = ()
    answers: tuple[str, ...] = ()


class Reading(NamedTuple):
    """How the cells of one table are read; new rows for its model are read in the same way.

    Args:
        decimal: Decimal mark of the table; the other mark stands between thousands.
        exceptions: Columns with another decimal mark than the table.
        signs: Sign of money or per cent of each column that has one.
        missing: Texts that count as missing, beside those that always do.
        same_capitals: Whether names that differ by capitals alone are one name.
        categorical: Columns that are categories even if they are numbers.
        numeric: Columns that are numbers even if they look like codes.
        bands: Lower ends of all bands but the first, by protected column.
        keeps_missing: Whether a missing value is a value: the category `MISSING`, or a number's bin of its own.
        found: Declared columns of numbers of which all rows together told how they are written.
        quantities: Columns of numbers whose cells are dates, durations, times or percentages; other cells are none
            of theirs.
        answers: Columns in which texts that else always count as missing do not, but for an empty one.
    """

    decimal: Decimal = "."
    exceptions: tuple[tuple[str, Decimal], ...] = ()
    signs: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    same_capitals: bool = False
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    bands: tuple[tuple[str, tuple[float, ...]], ...] = ()
    keeps_missing: bool = False
    found: tuple[str, ...] = ()
    quantities: tuple[tuple[str, Quantity], ...] = ()
    answers: tuple[str, ...] = ()

    def quantity(self, column: str) -> str:
        """Return the quantity of a column, "" if it is none but plain numbers or categories."""
        return dict(self.quantities).get(column, "")

    def mark(self, column: str) -> Decimal:
        """Return the decimal mark of a column."""
        return dict(self.exceptions).get(column, self.decimal)


ANY_SIGN = "any"
"""Stands for any sign of money, so that no row decides which sign others must have."""

MISSING = "missing"
"""The category of a missing value, where missing values are kept."""

PLAIN = Reading()
"""Numbers with a dot before decimals, and no marks but those that always count as missing."""


def as_declared(asked: Asked, raw: Iterable[str], numbers: Sequence[str], roles: Sequence[str | None]) -> Asked:
    """Return what is asked where the columns of numbers are declared, so that no value changes what a column is."""
    others = tuple(str(name) for name in raw
                   if name not in numbers and (name not in roles or name in asked.categorical))
    return replace(asked, categorical=others, numeric=tuple(numbers))


def as_read(asked: Asked, reading: Reading) -> Asked:
    """Return what is asked with the dates, durations and times that were found, which are numbers and no codes.

    Args:
        asked: What the user says.
        reading: How the table is read.
    """
    return replace(asked, quantities=reading.quantities, numeric=(*asked.numeric, *dict(reading.quantities)))


def with_bands(reading: Reading, asked: Asked, group: str) -> Reading:
    """Return how cells are read, with the bands that were asked for a protected column; see `Asked.bands`."""
    return reading._replace(bands=tuple((group if name == ALL else name, ends) for name, ends in asked.bands))


def band_names(ends: Sequence[float]) -> list[str]:
    """Return the names of the bands whose lower ends are `ends`, and of the first, which has none.

    Raises `ValueError` unless there are some and they rise.
    """
    if not len(ends) or any(not low < high for low, high in pairwise(ends)):
        raise ValueError(f"bands is {list(ends)}: give rising numbers, the lower ends of all bands but the first, for "
                         "example bands = [25, 60]")
    middle = [f"{low:g} to under {high:g}" for low, high in pairwise(ends)]
    return [f"under {ends[0]:g}", *middle, f"{ends[-1]:g} and over"]


def in_bands(numbers: pd.Series, ends: Sequence[float]) -> pd.Series:
    """Return the name of each number's band, as categories in rising order; a missing number stays missing.

    Raises `ValueError` if the values are no numbers, and as `band_names` does.
    """
    import pandas as pd  # here, since a node may need the names of bands alone

    names = band_names(ends)
    if not pd.api.types.is_numeric_dtype(numbers) or pd.api.types.is_bool_dtype(numbers):
        raise ValueError(f"bands are for numbers, but column {str(numbers.name)!r} holds others: leave bands out")
    positions = np.searchsorted(np.asarray(ends), numbers.to_numpy(dtype="float64"), side="right")
    kind = pd.CategoricalDtype(names, ordered=True)
    made = pd.Categorical.from_codes(np.where(numbers.isna(), -1, positions).tolist(), dtype=kind)
    return pd.Series(made.remove_unused_categories(), index=numbers.index, name=numbers.name)
