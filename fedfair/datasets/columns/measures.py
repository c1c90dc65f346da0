"""Texts that write a quantity in a way that no program reads: "<0.5", "70 kg", "134/83", "1h30", "31.12.2024".

What such a text means is the user's to say: a bound is no number, and a column may have several units.
"""

from __future__ import annotations

import re

import pandas as pd

from fedfair.datasets.columns.cell import plain

_NUMBER = r"[-+\u2212]?(?:\d{1,3}(?:[,.'\u2019\u00a0\u202f ]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[.,]\d+)"
_MONEY = r"(?:[A-Z]{0,3}[$\u20ac\u00a3\u00a5\u20b9] ?)?"
_UNIT = r"(?:[^\W\d_]|[%\u2030\u00b0\u00b5'\"\u2032\u2033/\u00b2\u00b3^])[^\s\d]{0,7}(?: [^\W\d_]{1,4}\b)?"
_BOUND = r"(?:[<>\u2264\u2265\u2248~\u00b1]=?|(?:about|ca\.?|under|over|up to|less than|more than|at least|at most)\b)"
_MONTH = r"(?:jan|feb|mar|m\u00e4r|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[^\W\d_]{0,6}\.?"
_FIRST = rf"(?!0\d){_NUMBER}"  # superfluous zeros are those of codes
_WAYS = {
    "a date": rf"\d{{4}}[-/.]\d{{1,2}}(?:[-/.]\d{{1,2}}(?:[T ].*)?)?|\d{{1,2}}[-/.]\d{{1,2}}[-/.](?:\d{{4}}|\d\d)"
              rf"(?: .*)?|\d{{1,2}}[-. ] ?{_MONTH}[-. ,]+\d{{2,4}}|{_MONTH} \d{{1,2}}, \d{{4}}|{_MONTH}[- ]\d{{4}}",
    "a bound": rf"{_BOUND} ?{_MONEY}{_NUMBER}(?: ?{_UNIT})?",
    "two numbers": rf"{_FIRST} ?(?:[-\u2013/:x\u00d7]|to) ?{_NUMBER}(?: ?{_UNIT})?",
    "a unit": rf"{_MONEY}{_FIRST} ?{_UNIT}(?: ?{_NUMBER} ?(?:{_UNIT})?){{0,2}}\+?|{_MONEY}{_FIRST}\+",
}
_PATTERNS = {way: re.compile(pattern, re.IGNORECASE) for way, pattern in _WAYS.items()}
_TOLD = re.compile(rf"[\d.,'\u2019\u00a0\u202f -]|{_BOUND}")


def way_of(text: str) -> str:
    r"""Return how a text writes a quantity: "a date", "a bound", "two numbers" or "a unit"; "" if it does not.

    Plain numbers, with signs of money or per cent, are none of these, and neither are names that begin with a number.

    Examples:
        >>> [way_of(text) for text in ("<0.5", "70 kg", "134/83", "55.3k", "1h30", "5'11\"", "9 sq ft", "1.12.2024")]
        ['a bound', 'a unit', 'two numbers', 'a unit', 'a unit', 'a unit', 'a unit', 'a date']
        >>> [way_of(text) for text in ("7", "$52,400", "12 %", "12 Main Street", "E11.9", "f", "1.2.3.4")]
        ['', '', '', '', '', '', '']
    """
    if not any(character.isdigit() for character in text) or plain(text, ".") or plain(text, ","):
        return ""
    return next((way for way, pattern in _PATTERNS.items() if pattern.fullmatch(text)), "")


def unit_of(text: str) -> str:
    """Return what is left of a text without numbers and bounds: its unit, in small letters."""
    return _TOLD.sub("", text).lower()


def ways(texts: pd.Series) -> pd.Series:
    """Return `way_of` each text, `[n]`, missing ones as they are."""
    return texts.map({text: way_of(text) for text in texts.dropna().unique()})
