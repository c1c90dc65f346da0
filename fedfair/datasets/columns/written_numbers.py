"""Numbers as people write them: with marks between thousands and before decimals, and signs of money or per cent.

The decimal mark of a table, found from all its columns together; never cell by cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.extensions import take

from fedfair.datasets.columns.convention import ALL, Asked, Decimal
from fedfair.datasets.columns.quantities import number_of, plain, sign_of
from fedfair.datasets.columns.texts import without_words
from fedfair.datasets.names import toml_key

_CODE, _WHOLE = "0[0-9]+", "[0-9]+"


def common_sign(texts: pd.Series) -> str | None:
    """Return the sign of money, "%" or "‰" of the numbers among some texts; "" without, None if they have several.

    Money may have no sign in some rows; per cent must be in all.
    """
    signs = {sign for text in shapes(texts).drop_duplicates().index if (sign := sign_of(text)) is not None}
    named = signs - {""}
    if len(named) > 1 or (named & {"%", "‰"} and "" in signs):
        return None
    return named.pop() if named else ""


def numbers(texts: pd.Series, mark: Decimal, sign: str | None = "") -> pd.Series:
    """Return the number that each text `[n]` writes; missing where it writes none, or has another sign than `sign`.

    A sign of None allows any of money, and then no text decides how another one is read.
    """
    places, different = texts.factorize()
    if not len(different):
        return pd.to_numeric(texts, errors="coerce")
    found = _each_number(pd.Series(different), mark) if sign is None else _numbers_of(pd.Series(different), mark, sign)
    return pd.Series(take(found.array, places, allow_fill=True), texts.index, name=texts.name)


def _each_number(texts: pd.Series, mark: Decimal) -> pd.Series:
    """Return the number that each of some different texts writes, whatever the others are, with any sign of money."""
    readable = texts if mark == "." else texts.mask(texts.str.contains(".", regex=False))
    found = pd.to_numeric(readable, errors="coerce").astype("float64").replace([np.inf, -np.inf], np.nan)
    others = texts[found.isna()]
    if len(others):
        found = found.fillna(others.map({text: number_of(text, "", mark) for text in others}).astype("float64"))
    return found + 0.0  # "-0" is -0.0 among fractions, but 0 among whole numbers


def _numbers_of(texts: pd.Series, mark: Decimal, sign: str) -> pd.Series:
    """Return the number that each of some different texts writes."""
    if sign == "" and (mark == "." or not texts.str.contains(".", regex=False).any()):
        simple = pd.to_numeric(texts, errors="coerce")
        if bool(simple.notna().all()):
            return simple
    return pd.to_numeric(texts.map({text: plain(text, mark, sign) for text in texts}), errors="coerce")


def shapes(texts: pd.Series) -> pd.Series:
    """Return the shape of each different text, by text: the text with 1 for each of its digits from 1 to 9.

    Texts of one shape write numbers in the same way, or none, so that one of them stands for all: a column of a million
    numbers has a few dozen shapes. Texts with an exponent are a shape of their own each.
    """
    known = texts.dropna().drop_duplicates().astype("string")
    known.index = pd.Index(known.to_numpy(dtype=object), dtype=object)
    ones = known.str.replace("[2-9]", "1", regex=True)
    return ones.where(~known.str.contains("[0-9][eE]"), known)


def are_codes(texts: pd.Series) -> bool:
    """Return whether a column of text holds whole numbers of which one begins with a superfluous zero, as codes do."""
    known = texts.dropna().astype("string")
    return bool(known.str.fullmatch(_CODE).any() and known.str.fullmatch(_WHOLE).all())


_NEARLY = 0.9  # of a column's texts are numbers: then they say something of the marks


class _Marks(NamedTuple):
    """What one column says: a number that only a decimal dot explains, one for the comma, and one that both explain."""

    dot: str | None
    comma: str | None
    either: str | None


def decimal_marks(texts: dict[str, pd.Series], asked: Asked, separator: str | None
                  ) -> tuple[Decimal, tuple[tuple[str, Decimal], ...]]:
    """Return the decimal mark of a table, and the columns that have the other one because the user said so.

    Args:
        texts: Columns of text by name, without missing marks.
        asked: What the user says; a mark for a column there settles that column.
        separator: What separates values in the file; None if there is no file of text.

    Raises:
        ValueError: If columns contradict each other, or if all numbers with a mark may be read in two ways.
    """
    said = dict(asked.decimal)
    found = {name: _marks(text) for name, text in texts.items() if name not in said}
    if ALL in said:
        exceptions = tuple((name, mark) for name, mark in said.items() if name != ALL and mark != said[ALL])
        return said[ALL], exceptions
    mark = _agreed(found) or _likely(found, separator)
    return mark, tuple((name, other) for name, other in said.items() if other != mark)


def _marks(text: pd.Series) -> _Marks:
    """Return what one column of text says."""
    of_values = shapes(without_words(text))
    counts, first = of_values.value_counts(), of_values.drop_duplicates()
    read = [(str(value), plain(str(value), "."), plain(str(value), ",")) for value in first.index]
    readable = sum(int(counts[shape]) for shape, (_, dot, comma) in zip(first, read, strict=True)
                   if dot is not None or comma is not None)
    if readable < max(1, _NEARLY * len(of_values)):
        return _Marks(None, None, None)
    return _Marks(next((value for value, dot, comma in read if dot is not None and comma is None), None),
                  next((value for value, dot, comma in read if comma is not None and dot is None), None),
                  next((value for value, dot, comma in read if dot and comma and float(dot) != float(comma)), None))


def _agreed(found: dict[str, _Marks]) -> Decimal | None:
    """Return the mark that some numbers need; None if all can be read in two ways.

    Raises `ValueError` if some need a dot and others a comma.
    """
    dots = {name: marks.dot for name, marks in found.items() if marks.dot}
    commas = {name: marks.comma for name, marks in found.items() if marks.comma}
    if dots and commas:
        few, mark = (commas, ",") if len(commas) <= len(dots) else (dots, ".")
        example = ", ".join(f'{toml_key(name)} = "{mark}"' for name in few)
        (dot, one), (comma, other) = next(iter(dots.items())), next(iter(commas.items()))
        raise ValueError(f"column {dot!r} has a dot before decimals ({one}), but column {comma!r} has a comma "
                         f"({other}): if that is so, say which columns differ from the rest, decimal = {{ {example} }}")
    return "." if dots else "," if commas else None


def _likely(found: dict[str, _Marks], separator: str | None) -> Decimal:
    """Return a dot where nothing speaks against it.

    Raises `ValueError` for numbers in a file of text that may be read in two ways.
    """
    doubtful = {name: marks.either for name, marks in found.items() if marks.either}
    if not doubtful or separator is None:
        return "."
    name, number = next(iter(doubtful.items()))
    kind = "comma" if "," in number else "dot"
    raise ValueError(f"column {name!r} has {number}, and nothing in the table says whether its {kind} is before "
                     f"decimals or between thousands: give decimal = \".\" or decimal = \",\"")
