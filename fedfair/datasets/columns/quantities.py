"""Dates, durations, times of day and percentages as numbers: days since 1970, days, hours since midnight, per cent.

A value that a format with types holds, and the text by which programs write it, are the same number, to the
microsecond. It needs the standard library alone: the program that a fit ships holds this file as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone

UNITS = {"date": "days since 1970-01-01", "duration": "days", "time": "hours since midnight",
         "percentage": "per cent"}
"""Quantities that are no plain numbers, and the unit in which each is one."""

WRITTEN = {"date": "2024-01-31 or 2024-01-31 13:30", "duration": "3 days 12:00:00 or P3DT12H", "time": "13:30",
           "percentage": "40 %"}
"""How each of them is written as text."""

DAY, HOUR = 86_400_000_000, 3_600_000_000
"""Microseconds."""

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
