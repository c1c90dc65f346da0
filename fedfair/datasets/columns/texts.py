"""What a text of a column stands for: no value, one name in several spellings, or a quantity that no program reads.

Marks for a missing value are texts that always count as one, words that do so among numbers, and numbers far from all
others. One name has one spelling: Unicode's composed form, single spaces, and capitals where they do not matter.

Quantities are written "<0.5", "70 kg", "134/83", "1h30", "31.12.2024". What such a text means is the user's to say: a
bound is no number, and a column may have several units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from fedfair.datasets.columns.cell import folded, spelled
from fedfair.datasets.columns.convention import Reading
from fedfair.datasets.columns.quantities import plain, written_number

ALWAYS = frozenset({"", "?", "#N/A", "#N/A N/A", "#NA", "#NULL!", "<NA>", "N/A", "n/a", "NA", "NULL", "null", "NaN",
                    "nan", "-nan", "-NaN", "None"})
"""Texts that count as missing in every column but those of `Reading.answers`."""

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
_CODE = re.compile(r"[A-Z]{2}")
_SPELLED = r"(?:[!-~]+(?: [!-~]+)*)?"  # visible ASCII, with single spaces: most texts, which are told at once
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
_BAND = re.compile(rf"{_MONEY}{_FIRST}[kKM]? ?(?:(?:[-\u2013]|to) ?{_MONEY}{_NUMBER}[kKM]?|\+)")
_PATTERNS = {way: re.compile(pattern, re.IGNORECASE) for way, pattern in _WAYS.items()}
_TOLD = re.compile(rf"[\d.,'\u2019\u00a0\u202f -]|{_BOUND}")


def marks_of(column: str, reading: Reading) -> frozenset[str]:
    """Return the texts that count as missing in a column.

    Args:
        column: Name of the column.
        reading: How the table is read.

    Examples:
        >>> "NA" in marks_of("country", Reading()), sorted(marks_of("country", Reading(answers=("country",))))
        (True, [''])
    """
    return frozenset(reading.missing) | ({""} if column in reading.answers else ALWAYS)


def doubtful_answer(text: pd.Series) -> str | None:
    """Return a text that counts as missing in a column of categories and may be one of them; None if there is none.

    NA may be a code beside codes of two capital letters, as of countries, and None an answer beside any other.

    Examples:
        >>> doubtful_answer(pd.Series(["DE", "NA", "FR"])), doubtful_answer(pd.Series(["basic", "None", "full"]))
        ('NA', 'None')
        >>> doubtful_answer(pd.Series(["north", "NA", "south"])) is None
        True
    """
    different = {*all_spelled(text.astype("string").dropna())}
    others = different - ALWAYS
    if "NA" in different and len(others) > 1 and all(_CODE.fullmatch(each) for each in others):
        return "NA"
    return "None" if "None" in different and others else None


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


def all_spelled(texts: pd.Series) -> pd.Series:
    """Return a column of text with each of its texts as `spelled` spells it."""
    different = texts.dropna().drop_duplicates()
    strange = different[~different.str.fullmatch(_SPELLED)]
    if strange.empty:
        return texts
    return texts.map({**dict(zip(different, different, strict=True)), **{text: spelled(text) for text in strange}}
                     ).astype("string")


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the sets of names that differ by capitals alone, each sorted."""
    sets: dict[str, set[str]] = {}
    for name in names:
        sets.setdefault(folded(name), set()).add(name)
    return [tuple(sorted(names)) for names in sets.values() if len(names) > 1]


def written_twice(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the sets of names that are one number, each sorted, as a spreadsheet makes them that drops zeros.

    Examples:
        >>> written_twice(["01", "1", "1.0", "2", "10", "a", "nan"])
        [('01', '1', '1.0')]
        >>> written_twice(["1152921504606846977", "1152921504606846978"])
        []
    """
    sets: dict[float, set[str]] = {}  # a whole number and a double that is equal are one key
    for name in names:
        number = written_number(name)
        if number is not None:
            sets.setdefault(number, set()).add(name)
    return [tuple(sorted(names)) for names in sets.values() if len(names) > 1]


def same_capitals(text: pd.Series) -> pd.Series:
    """Return a column of text in which names that differ by capitals alone have their most frequent spelling."""
    frequent = text.value_counts()
    by_name: dict[str, str] = {}
    for name in sorted(map(str, frequent.index), key=lambda name: (-frequent[name], name)):
        by_name.setdefault(folded(name), name)
    return text.map(lambda name: by_name[folded(name)], na_action="ignore").astype("string")


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


def is_band(text: str) -> bool:
    """Return whether a text is a range of a number without a unit, or of money, as bands are, which are categories.

    Examples:
        >>> [is_band(text) for text in ("18-24", "65+", "18 to 24", "30-40k", "$50,000-$75,000", "100k+")]
        [True, True, True, True, True, True]
        >>> [is_band(text) for text in ("134/83", "15-30 min", "<30", "E11-E14", "70 kg", "$52,400")]
        [False, False, False, False, False, False]
    """
    return _BAND.fullmatch(text) is not None


def unit_of(text: str) -> str:
    """Return what is left of a text without numbers and bounds: its unit, in small letters."""
    return _TOLD.sub("", text).lower()


def ways(texts: pd.Series) -> pd.Series:
    """Return `way_of` each text, `[n]`, missing ones as they are."""
    return texts.map({text: way_of(text) for text in texts.dropna().unique()})


def are_ranges(texts: pd.Series) -> bool:
    """Return whether there are texts, `[n]`, and all are ranges of a number, such as 18-25 or 3+; none is missing."""
    return len(texts) > 0 and bool(((ways(texts) == "two numbers") | texts.str.endswith("+")).all())
