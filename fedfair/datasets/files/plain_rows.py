"""New rows in a file of text, of which a model says the names of the columns: they tell what separates values.

It needs the standard library alone: the program that a fit ships holds this file as it stands.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from fedfair.datasets.columns.cell import refuse_absent, repeated, spelled

_SEPARATORS = ",;\t| "
_SAYS_SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)


def plain_rows(lines: Iterable[str], needed: list[str], file: str) -> tuple[list[str], list[list[str]]]:
    """Read the rows of a file.

    Args:
        lines: Its lines, with their ends.
        needed: Columns that must be there.
        file: Its name, for errors.

    Returns:
        Names of its columns, and the values of each row, as many as there are names.

    Raises:
        ValueError: If a needed column is absent, two columns have one name, there is no row, or a row has another
            number of values than the first line has names.
    """
    remaining = iter(lines)
    first = next(remaining, "")
    said = said_separator(first)
    if said:
        first = next(remaining, "")
    if not first.strip():
        raise ValueError(f"{file} is no table: its first line must hold the names of the columns")
    quote = "'" if first.strip().startswith("'") and '"' not in first else '"'
    separator = said or _separator(first, quote, needed)
    names = _names(first, separator, quote)
    twice = repeated(filter(None, names))
    if twice is not None:
        raise ValueError(f"{file} names column {twice!r} more than once: give each column a name of its own, or remove "
                         "the repeated one")
    refuse_absent(names, needed)
    rows = []
    try:
        for row in _values(chain([first], remaining), separator, quote):
            if row:  # a blank line is no row
                rows.append(row)
                if len(row) != len(names):
                    raise ValueError(f"row {len(rows) - 1} of {file} has {len(row)} values, but its first line has "
                                     f"{len(names)} names: correct the row, or put a value that holds the separator "
                                     f"into quotes")
    except csv.Error as error:
        raise ValueError(f"row {max(1, len(rows))} of {file} cannot be read ({error}): a quote may be open, or a value "
                         "too long; correct the row") from error
    if len(rows) < 2:
        raise ValueError(f"{file} has names of columns, but no records below them")
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)], rows[1:]


def said_separator(line: str) -> str | None:
    """Return the separator that a first line "sep=;" says, as Excel writes it; None for another line.

    Args:
        line: First line of a file, with its end.
    """
    said = _SAYS_SEPARATOR.match(line)
    return said[1] if said else None


def _separator(first: str, quote: str, needed: list[str]) -> str:
    """Return the separator by which the first line has most of the names that are needed, and then most names."""
    def fits(separator: str) -> tuple[int, int]:
        """Return how many needed names the line has, and how many names; blanks separate where nothing else does."""
        names = _names(first, separator, quote)
        return len({*needed} & {*names}), 0 if separator == " " else len(names)

    return max(_SEPARATORS, key=fits)


def _names(first: str, separator: str, quote: str) -> list[str]:
    """Return the names in a first line by a separator; none if it leaves a quote open."""
    try:
        return [spelled(name) for name in next(_values([first], separator, quote), [])]
    except csv.Error:
        return []


def _values(lines: Iterable[str], separator: str, quote: str) -> Iterator[list[str]]:
    """Yield the values of each row; several blanks separate as one does."""
    if separator == " ":
        lines = (f"{re.sub(' +', ' ', line.strip())}\n" for line in lines)
    yield from csv.reader(lines, delimiter=separator, quotechar=quote, skipinitialspace=True, strict=True)
