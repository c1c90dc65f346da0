"""Numbers as people and programs write them: plain ones and money, per cent, dates, durations and times of day.

Dates are days since 1970, durations days, times hours since midnight. A value that a format with types holds, and the
text by which programs write it, are the same number, to the microsecond. It needs the standard library alone: the
program that a fit ships holds this file as it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache

UNITS = {"date": "days since 1970-01-01", "duration": "days", "time": "hours since midnight",
         "percentage": "per cent"}
"""Quantities that are no plain numbers, and the unit in which each is one."""

WRITTEN = {"date": "2024-01-31 or 2024-01-31 13:30", "duration": "3 days 12:00:00 or P3DT12H", "time": "13:30",
           "percentage": "40 %"}
"""How each of them is written as text."""

DAY, HOUR = 86_400_000_000, 3_600_000_000
"""Microseconds."""

_CODED = re.compile("[-+]?0[0-9]")  # 007 is no 7
_EPOCH = date(1970, 1, 1)
_CLOCK = r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d+))?)?"
_DATE = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)(?:[T ]{_CLOCK}(?:(Z)|([+-])(\d\d):?(\d\d))?)?", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_DURATION = re.compile(r"(?:([+-]?\d+) days?,?)?(?:(?:^| )([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?", re.ASCII)
_ISO_DURATION = re.compile(r"(-?)P(?:(-?\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.ASCII)


def quantity_of(cell: object) -> tuple[str, float] | None:
    """Return which quantity a date, a moment, a duration or a time is, and its number; None for any other value.

    A moment with a time zone is one of UTC; one without is taken as if it were.

    Examples:
        >>> quantity_of(timedelta(days=68, hours=12)), quantity_of(date(1970, 1, 11)), quantity_of(time(13, 30))
        (('duration', 68.5), ('date', 10.0), ('time', 13.5))
        >>> quantity_of("13:30") is None
        True
    """
    if isinstance(cell, timedelta):
        return "duration", ((cell.days * 86400 + cell.seconds) * 10**6 + cell.microseconds) / DAY
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(timezone.utc)  # noqa: UP017 - the program is for Python 3.9, too
    if isinstance(cell, date):
        days = date(cell.year, cell.month, cell.day) - _EPOCH
        clock = cell.time() if isinstance(cell, datetime) else time()
        return "date", (days.days * DAY + _microseconds(clock)) / DAY
    return ("time", _microseconds(cell) / HOUR) if isinstance(cell, time) else None


def duration_text(span: timedelta) -> str:
    """Return a duration as pandas writes it.

    Args:
        span: The duration.

    Examples:
        >>> duration_text(timedelta(hours=3)), duration_text(timedelta(days=-1, seconds=5, microseconds=7))
        ('0 days 03:00:00', '-1 days +00:00:05.000007')
    """
    minutes, seconds = divmod(span.seconds, 60)
    fraction = f".{span.microseconds:06d}" if span.microseconds else ""
    sign = "+" if span.days < 0 else ""
    return f"{span.days} days {sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{fraction}"


def quantity_of_text(text: str) -> str:
    """Return which quantity a text writes, "" for none.

    Examples:
        >>> [quantity_of_text(text) for text in ("2024-01-31", "2024-13-31", "13:30", "1 days 00:00:00", "P3D", "3")]
        ['date', '', 'time', 'duration', 'duration', '']
    """
    return next((name for name, read in OF_TIME.items() if read(text, ".") is not None), "")


def _days_since(text: str, _: str) -> float | None:
    """Return the days since 1970 of a date, or of a moment, which may have an offset from UTC."""
    parts = _DATE.fullmatch(text)
    if not parts:
        return None
    year, month, day, hours, minutes, seconds, fraction, _, sign, *offset = parts.groups()
    clock = _of_clock(hours or "0", minutes or "00", seconds, fraction)
    try:
        days = (date(int(year), int(month), int(day)) - _EPOCH).days
    except ValueError:
        return None
    if clock is None:
        return None
    shift = (int(offset[0]) * 60 + int(offset[1])) * 60 * 10**6 if sign else 0
    return (days * DAY + clock + (shift if sign == "-" else -shift)) / DAY


def _hours_since_midnight(text: str, _: str) -> float | None:
    """Return the hours since midnight of a time of day."""
    parts = _TIME.fullmatch(text)
    clock = parts and _of_clock(*parts.groups())
    return None if clock is None else clock / HOUR


def _days_of_duration(text: str, _: str) -> float | None:
    """Return the days of a duration, as pandas and Python write it, or by ISO 8601."""
    iso = _ISO_DURATION.fullmatch(text)
    if iso and text[-1] not in "PT":
        minus, days, hours, minutes, seconds, fraction = iso.groups()
        total = int(days or 0) * DAY + _microseconds_of(hours or 0, minutes or 0, seconds or 0, fraction)
        return (-total if minus else total) / DAY
    parts = _DURATION.fullmatch(text)
    if not text or not parts:
        return None
    days, sign, hours, minutes, seconds, fraction = parts.groups()
    clock = _microseconds_of(hours or 0, minutes or 0, seconds or 0, fraction)
    return (int(days or 0) * DAY + (-clock if sign == "-" else clock)) / DAY


OF_TIME: dict[str, Callable[[str, str], float | None]] = {
    "date": _days_since, "time": _hours_since_midnight, "duration": _days_of_duration}
"""What reads a text in single spacing as a quantity of time, in its unit; a decimal mark does not matter to them."""


def _of_clock(hours: str, minutes: str, seconds: str | None, fraction: str | None) -> int | None:
    """Return the microseconds since midnight; None if it is no time of day."""
    if int(hours) > 23 or int(minutes) > 59 or int(seconds or 0) > 59:
        return None
    return _microseconds_of(hours, minutes, seconds or 0, fraction)


def _microseconds_of(hours: str | int, minutes: str | int, seconds: str | int, fraction: str | None) -> int:
    """Return the microseconds of hours, minutes and seconds, of which further digits are cut off."""
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 10**6 + int((fraction or "0")[:6].ljust(6, "0"))


def _microseconds(clock: time) -> int:
    """Return the microseconds since midnight."""
    return _microseconds_of(clock.hour, clock.minute, clock.second, f"{clock.microsecond:06d}")


_MONEY = (r"US\$|R\$|A\$|C\$|[$€£¥₹₽₩₺₪฿₫₴]|kr\.?|zł|Kč|Ft|lei|Rs\.?|Fr\.|"
          r"USD|EUR|GBP|CHF|SEK|NOK|DKK|PLN|CZK|HUF|JPY|CNY|INR|BRL|CAD|AUD|MXN|ZAR|TRY|RUB")
_SPACES = " \u00a0\u202f\u2009"
_SHAPE = re.compile(
    rf"(?P<owed>\()?(?P<minus>[-+\u2212]?)[{_SPACES}]*(?P<before>{_MONEY})?[{_SPACES}]*(?P<inner>[-+\u2212]?)"
    rf"(?P<digits>[\d.,](?:[\d.,'\u2019{_SPACES}]*[\d.,])?)(?P<power>[eE][-+]?\d+)?(?P<after>[-\u2212]|(?<=[.,])(?:--|[\u2013\u2014]))?[{_SPACES}]*(?P<behind>{_MONEY}|[%‰])?"
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

    A minus may stand behind the digits, as SAP writes it; behind a mark for decimals a dash stands for none of them, as
    on Swiss and German price tags.

    Args:
        text: Text without spaces around it.
        mark: Decimal mark, "." or ",".
        sign: Sign of money or per cent that the number must have; money may be without. None allows any.

    Returns:
        The number as text, None if the text is no such number.

    Examples:
        >>> plain("$1,234.50", "."), plain("1.234,50-", ","), plain("-5-", "."), plain("Fr. 1'250.-", ".")
        ('1234.50', '-1234.50', None, '1250.')
    """
    parts = _SHAPE.fullmatch(text)
    if not parts or not _digits(mark).fullmatch(parts["digits"]):
        return None
    if sign is not None and (own := _sign(parts)) != sign and (own or (sign in "%‰" and sign)):
        return None
    signs = parts["minus"] + parts["inner"]
    is_below = bool(parts["after"]) and parts["digits"][-1] not in ".,"
    if is_below and (signs or parts["owed"]):
        return None
    negative = bool(parts["owed"]) or is_below or "-" in signs or "\u2212" in signs
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
    return None if sign_of(text) in _PARTS else finite(plain(text, mark))


def _percent(text: str, mark: str) -> float | None:
    """Return the per cent that a number with its sign writes."""
    sign = sign_of(text) or ""
    number = finite(plain(text, mark)) if sign in _PARTS else None
    return None if number is None else number / _PARTS[sign]


_PARTS = {"%": 1, "‰": 10}
"""Parts of one per cent, by their signs."""

_READERS: dict[str, Callable[[str, str], float | None]] = {**OF_TIME, "percentage": _percent, "": _plain_number}


def _sign(parts: re.Match[str]) -> str:
    """Return the sign of money or per cent of a number, "" if it has none."""
    sign: str = parts["before"] or parts["behind"] or ""
    return sign[:-1] if sign.endswith(".") else sign


def finite(number: object) -> float | None:
    """Return a number in double precision; None if it is beyond that, or none."""
    try:
        made = float(number)  # type: ignore[arg-type]
    except (OverflowError, TypeError):
        return None
    return made + 0.0 if math.isfinite(made) else None  # "-0" is 0


_WHOLE = re.compile(r"([-+]?\d+)(?:\.0*)?", re.ASCII)
ROUNDED = 2.0**53
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
    return number if number is None or abs(number) < ROUNDED else None


@lru_cache(maxsize=64)
def numbers_among(marks: frozenset[str]) -> frozenset[float]:
    """Return the numbers that some marks for missing values write.

    Args:
        marks: The marks.

    Examples:
        >>> numbers_among(frozenset({"", "NA", "-999"}))
        frozenset({-999})
    """
    return frozenset(number for mark in marks if (number := written_number(mark)) is not None)


def is_mark(text: str, marks: frozenset[str]) -> bool:
    """Return whether a text stands for a missing value: as one of some marks, or as the number that one writes.

    Args:
        text: The text.
        marks: The marks.

    Examples:
        >>> [is_mark(text, frozenset({"NA", "-9", "7"})) for text in ("-9", "-9.0", "NA", "9", "007")]
        [True, True, True, False, False]
    """
    return text in marks or (bool(numbers_among(marks)) and not _CODED.match(text)
                             and written_number(text) in numbers_among(marks))
