"""One cell: a name in one spelling, what a cell of a new row means to a model, and what is said of one it cannot read.

Names are written so that no spreadsheet takes them for formulas.

It needs the standard library alone: the program that a fit ships holds this file as it stands.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from functools import lru_cache
from numbers import Number
from typing import NamedTuple
from unicodedata import normalize

from fedfair.datasets.columns.quantities import (
    ROUNDED,
    WRITTEN,
    duration_text,
    finite,
    is_mark,
    number_of,
    numbers_among,
    quantity_of,
    written_number,
)

_INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u2060\ufeff\u00ad")


def spelled(text: str) -> str:
    """Return a text in Unicode's composed form, without invisible characters, and with single spaces between words."""
    if text.isascii():
        return " ".join(text.split()) if "  " in text or text != text.strip() or "\n" in text else text
    return " ".join(normalize("NFC", text).translate(_INVISIBLE).split())


def folded(text: str) -> str:
    """Return a text without a difference between capitals and small letters."""
    return normalize("NFC", text.casefold())


class Column(NamedTuple):
    """How a model reads the cells of a column in new rows: as they were read where it was trained.

    Args:
        name: Name of the column.
        known: Categories that the model knows, sorted; None for a column of numbers.
        unknown: Category that any other one counts as; None if it counts as none of them.
        gap: Category of a missing value; None if it counts as none of them. Without meaning among numbers.
        missing: Texts that stand for a missing value.
        words: Texts, in small letters, that stand for a missing number.
        mark: Mark before decimals, "." or ",".
        same_capitals: Whether categories that differ by capitals alone are one.
        quantity: Which of `columns.quantities.UNITS` the column holds; "" for plain numbers.
    """

    name: str
    known: tuple[str, ...] | None
    unknown: str | None
    gap: str | None
    missing: frozenset[str]
    words: frozenset[str]
    mark: str
    same_capitals: bool
    quantity: str = ""

    def number(self, cell: object) -> float | None:
        """Return the number of a cell, NaN if it is missing; None if the cell is something else.

        Args:
            cell: Text, or a value that a format with types holds. No number is infinite, and none is a date, a
                duration, a time or a percentage, of which a plain number does not say the unit.
        """
        if _is_gap(cell):
            return math.nan
        quantity = quantity_of(cell)
        if quantity is not None:
            return quantity[1] if quantity[0] == self.quantity else None
        if isinstance(cell, Number) or type(cell).__name__ in _TRUTH_VALUES:
            return None if self.quantity else self._unmarked(finite(cell))
        text = spelled(str(cell))
        if text in self.missing or text.lower() in self.words:
            return math.nan
        number = number_of(text, self.quantity, self.mark)
        return number if self.quantity else self._unmarked(number)

    def _unmarked(self, number: float | None) -> float | None:
        """Return a number, NaN where it stands for a missing value."""
        return math.nan if number in numbers_among(self.missing) else number

    def category(self, cell: object) -> str | None:
        """Return the category of a cell as the model knows it, `gap` if the cell is missing; None for an unknown one.

        A category is known by its text, by the only known one that is the same number (1 and 1.0) or truth value (True,
        TRUE, t and 1), and by its letters where capitals do not matter.

        Args:
            cell: Text, or a value that a format with types holds.
        """
        text = self.text(cell)
        if text is None:
            return self.gap
        known = self.known or ()
        if isinstance(cell, float) and abs(cell) >= ROUNDED and _are_rounded(known):
            return None  # a code that a double has rounded, where the training had whole numbers
        if text in known:
            return text
        if self.same_capitals and folded(text) in _by_letters(known):
            return _by_letters(known)[folded(text)]
        same = by_number(known).get(written_number(text), [])
        return same[0] if len(same) == 1 else truth_values(known).get(text.lower())

    def text(self, cell: object) -> str | None:
        """Return the text of a category: a whole number has no decimals, midnight is a day; None if it is missing."""
        if _is_gap(cell):
            return None
        text = spelled(_as_text(cell))
        return None if is_mark(text, self.missing) else text

    def is_missing(self, cell: object) -> bool:
        """Return whether a cell is missing."""
        if self.known is not None:
            return self.text(cell) is None
        number = self.number(cell)
        return number is not None and number != number


def _is_gap(cell: object) -> bool:
    """Return whether a cell is None, NaN, or pandas' NA, of which nothing can be said."""
    try:
        return cell is None or bool(cell != cell)
    except TypeError:
        return True
    except ValueError:  # several values
        return False


def _as_text(cell: object) -> str:
    """Return a value as the training named it: a text that is a member of an enumeration is that text."""
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return str(cell.date())
    return duration_text(cell) if type(cell) is timedelta else str(cell)


@lru_cache(maxsize=64)
def by_number(known: tuple[str, ...]) -> dict[float | None, list[str]]:
    """Return the categories that write each number, which are several where one is written in several ways.

    Args:
        known: Categories.

    Examples:
        >>> by_number(("1", "1.0", "2", "two"))
        {1: ['1', '1.0'], 2: ['2']}
    """
    found: dict[float | None, list[str]] = {}
    for name in known:
        found.setdefault(written_number(name), []).append(name)
    found.pop(None, None)
    return found


@lru_cache(maxsize=64)
def _are_rounded(known: tuple[str, ...]) -> bool:
    """Return whether a double cannot hold the whole number that one of some categories writes."""
    return any(finite(number) != number for number in by_number(known))


@lru_cache(maxsize=64)
def _by_letters(known: tuple[str, ...]) -> dict[str, str]:
    """Return categories by their letters, without a difference between capitals and small ones."""
    return {folded(name): name for name in known}


_TRUTH_VALUES = ("bool", "bool_")  # of numpy, whose are no Number
_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


@lru_cache(maxsize=64)
def truth_values(known: tuple[str, ...]) -> dict[str, str]:
    """Return the category of each way to write a truth value, in small letters; none unless both are categories.

    Args:
        known: Categories; all but "missing" and "other" must be the two truth values.

    Examples:
        >>> truth_values(("False", "True", "other"))["t"], truth_values(("f", "m")), truth_values(("0", "1", "2"))
        ('True', {}, {})
    """
    names = [name for name in known if name not in ("missing", "other")]
    true, false = ([name for name in names if name.lower() in words] for words in (_TRUE, _FALSE))
    if len(names) != 2 or len(true) != 1 or len(false) != 1:
        return {}
    return {**dict.fromkeys(_TRUE, true[0]), **dict.fromkeys(_FALSE, false[0])}


class Doubt(NamedTuple):
    """A cell of a new row that is no plain case.

    Args:
        row: Number of its row, from 1.
        cell: What stands there.
    """

    row: int
    cell: object


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def spreadsheet_cell(value: object) -> object:
    """Keep a spreadsheet from taking a name for a formula: put an apostrophe before one that starts like one.

    Numbers stay numbers, also those that are text. `from_spreadsheet_cell` undoes it.
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _writes_number(value) else value


def from_spreadsheet_cell(value: object) -> object:
    """Return the name that `spreadsheet_cell` wrote."""
    return value[1:] if isinstance(value, str) and value.startswith("'") and _FORMULA.match(value) else value


def _writes_number(text: str) -> bool:
    """Return whether a text is a number, which no spreadsheet takes for a formula."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that is there more than once; None if each is there once.

    Args:
        names: Names of columns, of which there may be 100,000.

    Examples:
        >>> repeated(["age", "sex", "age"]), repeated(["age", "sex"])
        ('age', None)
    """
    return next((name for name, times in Counter(names).items() if times > 1), None)


def refuse_absent(names: list[str], needed: list[str]) -> None:
    """Raise `ValueError` if rows lack a column that a model needs.

    Args:
        names: Names of the rows' columns.
        needed: Names of the model's columns.
    """
    there = {*names}
    absent = [name for name in needed if name not in there]
    if not absent:
        return
    by_letters: dict[str, list[str]] = {}
    for name in names:
        by_letters.setdefault(folded(name), []).append(name)
    alike = [f"write {other!r} as {name!r}" for name in absent for other in by_letters.get(folded(name), [])]
    raise ValueError(f"the rows have no column {', '.join(map(repr, absent))}: the model was trained on "
                     f"{', '.join(needed)}, and needs them all; the rows have {_some(names)}"
                     + (f"; {', '.join(alike)}" if alike else ""))


def unreadable(column: Column, doubts: list[Doubt]) -> str:
    """Return the sentence that refuses cells that are no numbers.

    Args:
        column: Their column.
        doubts: The cells, at least one.
    """
    first, more = doubts[0], len(doubts) - 1
    kind = column.quantity or "number"
    others = f" and {more:,} other cell{'s' * (more > 1)} that {f'are no {kind}s' if more > 1 else f'is no {kind}'}"
    needed = (f"a {column.quantity}, such as {WRITTEN[column.quantity]}" if column.quantity else
              f"a number with a {'dot' if column.mark == '.' else 'comma'} before decimals")
    return (f"column {column.name!r} has {_shown(first.cell)} in row {first.row}{others if more else ''}, where the "
            f"model needs {needed}, as in its training: correct that, leave it empty, or count what cannot be read as "
            "missing (--unreadable missing)")


def counted_as_missing(column: Column, doubts: list[Doubt], rows: int) -> str:
    """Return the sentence about cells that are no numbers and count as missing.

    Args:
        column: Their column.
        doubts: The cells, at least one.
        rows: Number of all rows.
    """
    words = "is no number and counts" if len(doubts) == 1 else "are no numbers and count"
    return (f"{len(doubts):,} of {rows:,} values of {column.name!r} {words} as missing: "
            f"{_some(each.cell for each in doubts)}")


def counted_as_other(column: Column, doubts: list[Doubt], rows: int) -> str:
    """Return the sentence about categories that a model does not know.

    Args:
        column: Their column.
        doubts: The cells, at least one.
        rows: Number of all rows.
    """
    known = [name for name in column.known or () if name not in (column.unknown, column.gap)]
    are, count = ("is", "counts") if len(doubts) == 1 else ("are", "count")
    meant = "none of them" if column.unknown is None else repr(column.unknown)
    return (f"{len(doubts):,} of {rows:,} values of {column.name!r} {are} none of the categories that the model knows, "
            f"{_some(known) if known else 'of which there are none'}, and {count} as {meant}: "
            f"{_some(each.cell for each in doubts)}")


def without_values(places: list[int], rows: int) -> str:
    """Return the sentence about rows that have no value in any column of a model.

    Args:
        places: Their numbers, from 1, at least one.
        rows: Number of all rows.
    """
    have, are = ("has", "is") if len(places) == 1 else ("have", "are")
    return (f"{len(places):,} of {rows:,} rows {have} none of the values that the model needs, or cannot be read, and "
            f"{are} decided as one of which all values are missing: row {', '.join(map(str, places[:5]))}"
            + (", ..." if len(places) > 5 else ""))


def _some(values: Iterable[object]) -> str:
    """Return the first few different values, as people may read them in a terminal."""
    different = list(dict.fromkeys(map(_shown, values)))
    return ", ".join(different[:5]) + (", ..." if len(different) > 5 else "")


def _shown(value: object) -> str:
    """Return a value in quotes, without characters that a terminal would obey, and not too long."""
    text = repr(str(value))
    return text if len(text) <= 60 else f"{text[:50]}...{text[0]}"
