"""The decimal mark of a table, found from all its columns together; never cell by cell."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from fedfair.datasets.missing_marks import without_words
from fedfair.datasets.reading import ALL, Asked, Decimal
from fedfair.datasets.written_numbers import plain, shapes

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
        example = ", ".join(f'{_key(name)} = "{mark}"' for name in few)
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


def _key(name: str) -> str:
    """Write a column's name as a key of a table in TOML."""
    return name if name.isidentifier() and name.isascii() else f'"{name}"'
