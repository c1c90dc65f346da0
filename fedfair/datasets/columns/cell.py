"""One cell: a name in one spelling, a number as people write it, and what a cell of a new row means to a model.

Names are written so that no spreadsheet takes them for formulas.

It needs the standard library alone: the program that a fit ships holds this file as it stands.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from functools import lru_cache
from numbers import Number
from typing import NamedTuple
from unicodedata import normalize

from fedfair.datasets.columns.quantities import OF_TIME, WRITTEN, duration_text, quantity_of

_INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u2060\ufeff\u00ad")


def spelled(text: str) -> str:
    """Return a text in Unicode's composed form, without invisible characters, and with single spaces between words."""
    if text.isascii():
        return " ".join(text.split()) if "  " in text or text != text.strip() or "\n" in text else text
    return " ".join(normalize("NFC", text).translate(_INVISIBLE).split())


def folded(text: str) -> str:
    """Return a text without a difference between capitals and small letters."""
    return normalize("NFC", text.casefold())


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_MONEY = (r"US\$|R\$|A\$|C\$|[$€£¥₹₽₩₺₪฿₫₴]|kr\.?|zł|Kč|Ft|lei|Rs\.?|Fr\.|"
          r"USD|EUR|GBP|CHF|SEK|NOK|DKK|PLN|CZK|HUF|JPY|CNY|INR|BRL|CAD|AUD|MXN|ZAR|TRY|RUB")
_SPACES = " \u00a0\u202f\u2009"
_SHAPE = re.compile(
    rf"(?P<owed>\()?(?P<minus>[-+\u2212]?)[{_SPACES}]*(?P<before>{_MONEY})?[{_SPACES}]*(?P<inner>[-+\u2212]?)"
    rf"(?P<digits>[\d.,](?:[\d.,'\u2019{_SPACES}]*[\d.,])?)(?P<power>[eE][-+]?\d+)?[{_SPACES}]*(?P<behind>{_MONEY}|[%‰])?"
    r"(?(owed)\))", re.ASCII)


@lru_cache(maxsize=2)
def _digits(mark: str) -> re.Pattern[str]:
    """Return the pattern of digits with a decimal mark, in which the other mark or a space is between thousands."""
    other, decimals = "," if mark == "." else ".", re.escape(mark)
    thousands = rf"[1-9]\d{{0,2}}([{other}'\u2019{_SPACES}])\d{{3}}(?:\1\d{{3}})*"
    lakhs = r"|[1-9]\d?(?:,\d\d)+,\d{3}" if mark == "." else ""
    return re.compile(rf"(?:{thousands}{lakhs}|\d+)(?:{decimals}\d*)?|{decimals}\d+", re.ASCII)


def plain(text: str, mark: str, sign: str | None = None) -> str | None:
    """Write a number as programs do, with a dot before decimals and without signs of money.

    Args:
        text: Text without spaces around it.
        mark: Decimal mark, "." or ",".
        sign: Sign of money or per cent that the number must have; money may be without. None allows any.

    Returns:
        The number as text, None if the text is no such number.
    """
    parts = _SHAPE.fullmatch(text)
    if not parts or not _digits(mark).fullmatch(parts["digits"]):
        return None
    if sign is not None and (own := _sign(parts)) != sign and (own or (sign in "%‰" and sign)):
        return None
    negative = bool(parts["owed"]) or "-" in (signs := parts["minus"] + parts["inner"]) or "\u2212" in signs
    digits = re.sub(rf"[^\d{re.escape(mark)}]", "", parts["digits"]).replace(mark, ".")
    return f"{'-' * negative}{digits}{parts['power'] or ''}"


def sign_of(text: str) -> str | None:
    """Return the sign of money, "%" or "‰" of a number, "" if it has none; None for a text that is no number."""
    parts = _SHAPE.fullmatch(text)
    return _sign(parts) if parts else None


def number_of(text: str, quantity: str, mark: str = ".") -> float | None:
    """Return the number that a text writes as a quantity; None if it writes no such quantity.

    A percentage has its sign, and a plain number none of per cent: .4 and 40 may be the same as 40 %.

    Args:
        text: Text in single spacing, without spaces around it.
        quantity: Which of `columns.quantities.UNITS`; "" for a plain number.
        mark: Decimal mark, "." or ",".

    Examples:
        >>> number_of("40,5 %", "percentage", ","), number_of("5 ‰", "percentage"), number_of("$4", "")
        (40.5, 0.5, 4.0)
        >>> number_of("40 %", ""), number_of("40", "percentage")
        (None, None)
        >>> number_of("1970-01-02T12:00+01:00", "date"), number_of("-1 days +18:00:00", "duration")
        (1.4583333333333333, -0.25)
        >>> number_of("13:30", "time"), number_of("P1DT6H", "duration"), number_of("7", "duration")
        (13.5, 1.25, None)
    """
    return _READERS[quantity](text, mark)


def _plain_number(text: str, mark: str) -> float | None:
    """Return the number that a text writes, with any sign of money."""
    return None if sign_of(text) in _PARTS else _finite(plain(text, mark))


def _percent(text: str, mark: str) -> float | None:
    """Return the per cent that a number with its sign writes."""
    sign = sign_of(text) or ""
    number = _finite(plain(text, mark)) if sign in _PARTS else None
    return None if number is None else number / _PARTS[sign]


_PARTS = {"%": 1, "‰": 10}
"""Parts of one per cent, by their signs."""


_READERS: dict[str, Callable[[str, str], float | None]] = {**OF_TIME, "percentage": _percent, "": _plain_number}


def _sign(parts: re.Match[str]) -> str:
    """Return the sign of money or per cent of a number, "" if it has none."""
    sign: str = parts["before"] or parts["behind"] or ""
    return sign[:-1] if sign.endswith(".") else sign


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
            return None if self.quantity else _finite(cell)
        text = spelled(str(cell))
        if text in self.missing or text.lower() in self.words:
            return math.nan
        return number_of(text, self.quantity, self.mark)

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
        if isinstance(cell, float) and abs(cell) >= _ROUNDED and any(
                _finite(number) != number for number in map(written_number, known) if number is not None):
            return None  # a code that a double has rounded, where the training had whole numbers
        if text in known:
            return text
        if self.same_capitals and folded(text) in (by_letters := {folded(name): name for name in known}):
            return by_letters[folded(text)]
        number = written_number(text)
        same = [name for name in known if number is not None and written_number(name) == number]
        return same[0] if len(same) == 1 else truth_values(known).get(text.lower())

    def text(self, cell: object) -> str | None:
        """Return the text of a category: a whole number has no decimals, midnight is a day; None if it is missing."""
        if _is_gap(cell):
            return None
        text = spelled(_as_text(cell))
        return None if text in self.missing else text

    def is_missing(self, cell: object) -> bool:
        """Return whether a cell is missing."""
        text = self.text(cell)
        return text is None or (self.known is None and text.lower() in self.words)


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


def _finite(number: object) -> float | None:
    """Return a number in double precision; None if it is beyond that, or none."""
    try:
        made = float(number)  # type: ignore[arg-type]
    except (OverflowError, TypeError):
        return None
    return made + 0.0 if math.isfinite(made) else None  # "-0" is 0


_WHOLE = re.compile(r"([-+]?\d+)(?:\.0*)?", re.ASCII)
_ROUNDED = 2.0**53
"""From here on a double may be any of several whole numbers, such as codes of 17 digits."""


def written_number(text: str) -> float | None:
    """Return the number that a text writes, as a program does, a whole one exactly; None if it writes none.

    Examples:
        >>> written_number("01.0") == written_number("1"), written_number("1e3"), written_number("1e17")
        (True, 1000.0, None)
        >>> written_number("12345678901234567") == written_number("12345678901234568")
        False
    """
    whole = _WHOLE.fullmatch(text)
    try:
        if whole:
            return int(whole[1])
        number = float(text) if text.isascii() and "_" not in text else None  # Python's own writings are no file's
    except ValueError:
        return None
    return number if number is None or abs(number) < _ROUNDED else None


class Doubt(NamedTuple):
    """A cell of a new row that is no plain case.

    Args:
        row: Number of its row, from 1.
        cell: What stands there.
    """

    row: int
    cell: object


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
