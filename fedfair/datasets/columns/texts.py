"""Which texts and numbers stand for a missing value."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

ALWAYS = frozenset({"", "?", "#N/A", "#N/A N/A", "#NA", "#NULL!", "<NA>", "N/A", "n/a", "NA", "NULL", "null", "NaN",
                    "nan", "-nan", "-NaN", "None"})
"""Texts that count as missing in every column."""

AMONG_NUMBERS = frozenset({
    ".", "..", "...", "-", "--", "---", "\u2013", "\u2014", "*", "**", "x", "na", "n.a.", "n.a", "n/d", "nd", "s/d",
    "k.a.", "k. a.", "none", "nil", "null", "unknown", "unk", "unkn", "missing", "not available", "not applicable",
    "not known", "not reported", "not stated", "no data", "no answer", "refused", "undisclosed", "unbekannt",
    "keine angabe", "fehlt", "inconnu", "non disponible", "desconocido", "sconosciuto", "onbekend", "okänd", "ukjent",
    "ukendt", "neznámé", "nieznane", "brak", "desconhecido"})
"""Words, without capitals, that count as missing among numbers; among other words they are an answer."""

_NEGATIVE = (-1, -9, -99, -999, -9999, -99999, -999999, -8, -88, -888, -8888, -7, -77, -777)
_POSITIVE = (999, 9999, 99999, 999999, 888, 8888, 777, 7777)
_APART = 5  # times the spread of the other values: a mark lies further away than that


def without_marks(text: pd.Series, marks: Collection[str]) -> pd.Series:
    """Return a column of text in which the marks that always count, and `marks`, are missing values."""
    return text.mask(text.isin(ALWAYS | {*marks}))


def without_words(text: pd.Series) -> pd.Series:
    """Return a column of numbers as text in which the words for "unknown" are missing values."""
    return text.mask(text.str.lower().isin(AMONG_NUMBERS))


def doubtful_mark(numbers: pd.Series) -> float | None:
    """Return a number such as -999 that occurs several times far from all others, as a mark for missing values does.

    None if there is none. -1 and one-digit marks are not looked at where few numbers occur: then they are codes.
    """
    known = numbers.dropna()
    counts = known.value_counts()
    for mark in (*_NEGATIVE, *_POSITIVE):
        if counts.get(mark, 0) < 2:
            continue
        others = known[known != mark]
        if len(others) and _is_apart(mark, others):
            return mark
    return None


def _is_apart(mark: float, others: pd.Series) -> bool:
    """Return whether a mark lies away from the other numbers on the side where no others can be."""
    low, high = float(others.min()), float(others.max())
    if mark < 0:
        return low >= 0 and others.nunique() > 2 and (mark <= -99 or others.nunique() > -10 * mark)
    return low >= 0 and mark > max(_APART * high, 10 * others.nunique())
