"""Reading a file of text with a table: its separator, its names of columns, and what is wrong with it.

What separates the values of a file, and what quotes them: the convention in which all its lines fit together; a value
may go over several lines. Where rows are protected, `fedfair.datasets.files.row_file` reads each line by itself.
"""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedfair.datasets.columns.cell import folded, repeated, spelled
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.quantities import plain
from fedfair.datasets.files.plain_rows import said_separator
from fedfair.datasets.files.text_file import Text, text_of

_log = logging.getLogger(__name__)

_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar", " ": "blanks"}
_LINES = 200  # of the file are looked at
_QUOTES = ('"', "'", '\\"', '""')


class Lines(Protocol):
    """A text, such as `fedfair.datasets.files.text_file.Text`."""

    def lines(self, first: int = 0) -> Iterator[str]:
        """Yield the lines from that number on, with their ends."""


class Layout(NamedTuple):
    """How lines become values.

    Args:
        separator: What stands between two values; " " for any number of blanks.
        quote: What stands around a value that holds a separator.
        escape: What stands before a quote within quotes, if it is not doubled.
        skip: Number of first lines that belong to the file's format, as "sep=;" does.
    """

    separator: str
    quote: str = '"'
    escape: str | None = None
    skip: int = 0

    def __str__(self) -> str:
        """Describe the layout for people."""
        return f"values separated by {_NAMES.get(self.separator, repr(self.separator))}"


def layout_of(text: Lines, name: str, separator: str | None = None) -> Layout:
    """Return how the lines of a text become values.

    Args:
        text: Text of the file.
        name: Name of the file, for errors.
        separator: What separates values; by default that in which all lines have the same number of values.

    Raises:
        ValueError: If two separators fit equally well; the message names the setting.
    """
    said = said_separator(next(text.lines(), ""))
    skip = 1 if said else 0
    quotes = _quotes(text.lines(skip))
    first = [*islice(text.lines(skip), _LINES)]
    unescaped = '\\"' not in quotes or '""' in quotes or _fits_unescaped(text, skip)
    escape = None if unescaped else "\\"
    wanted = separator or said
    if wanted:
        return Layout(wanted, _quote(first, quotes, wanted), escape, skip)
    widths = {}
    for mark in ",;\t|":
        widths[mark] = _width(text.lines(skip), mark, _quote(first, quotes, mark), escape)
    most = max(widths.values())
    if most <= 1:
        blanks = _width(_blanks_as_one(first), " ", '"', escape)
        mark = " " if blanks > 1 else _most_frequent(first)
        return Layout(mark, _quote(first, quotes, mark), escape, skip)
    widest = [mark for mark, width in widths.items() if width == most]
    if len(widest) > 1:
        kinds = " as well as ".join(_NAMES[mark] for mark in widest)
        raise ValueError(f"{name} may be separated by {kinds}: say which with the setting separator, for example "
                         f"separator = {widest[0]!r}")
    return Layout(widest[0], _quote(first, quotes, widest[0]), escape, skip)


def _quotes(lines: Iterable[str]) -> set[str]:
    """Return which marks around values, or before them, occur in some lines."""
    found: set[str] = set()
    for line in lines:
        if '"' in line or "'" in line:
            found |= {mark for mark in _QUOTES if mark in line}
    return found


def _width(lines: Iterable[str], separator: str, quote: str, escape: str | None) -> int:
    """Return the number of values in each of the first rows, 0 if they differ or quotes are not closed."""
    try:
        widths = {len(row) for row in islice(_rows(lines, separator, quote, escape), _LINES) if row}
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _fits_unescaped(text: Lines, skip: int) -> bool:
    """Return whether a text has as many values in each line if a backslash is a sign like others.

    A value may end in a backslash, and must not change how all others are read.
    """
    for mark in ",;\t|":
        try:
            widths = {len(row) for row in _rows(text.lines(skip), mark, '"', None) if row}
        except csv.Error:
            continue
        if len(widths) == 1 and widths.pop() > 1:
            return True
    return False


def _rows(lines: Iterable[str], separator: str, quote: str, escape: str | None) -> Iterator[list[str]]:
    """Return the rows of a text."""
    return csv.reader(lines, delimiter=separator, quotechar=quote, escapechar=escape, doublequote=escape is None,
                      skipinitialspace=True, strict=True)


def _quote(first: Iterable[str], quotes: set[str], separator: str) -> str:
    """Return the mark around values: a double quote, or a single one around all values of a line or a column."""
    if '"' in quotes or "'" not in quotes:
        return '"'
    cut = re.escape(separator)
    lines = [line.removesuffix("\n") for line in first if line.strip()]
    quoted = [line for line in lines if re.search(rf"(^|{cut})\s*'[^']*'\s*({cut}|$)", line)]
    return "'" if len(quoted) >= max(1, len(lines) - 1) else '"'


def _blanks_as_one(first: Iterable[str]) -> list[str]:
    """Return lines in which one blank separates what several separated, without blanks around them."""
    return [f"{re.sub(' +', ' ', line.strip())}\n" for line in first]


def _most_frequent(first: Iterable[str]) -> str:
    """Return the separator that is most frequent in the first line, outside quotes."""
    line = re.sub('"[^"]*"', "", "".join(first)).split("\n", 1)[0]
    return max(",;\t|", key=line.count)


_FIRST = "Unnamed: {}"


class CsvFile(NamedTuple):
    """A table of text whose first lines have been read.

    Args:
        text: The text.
        layout: How its lines become values.
        names: Names of the columns.
    """

    text: Text
    layout: Layout
    names: list[str]

    def frame(self) -> pd.DataFrame:
        """Return the values of all lines below the names, as text; raise `ValueError` for an incomplete file.

        Lines that repeat the names, as files have that were put together, are left out with a warning.
        """
        with _incomplete_is_refused(self.text.path), self.text.open() as text:
            frame: pd.DataFrame = _parsed(text, self.layout).set_axis(self.names, axis=1)
        return without_names(frame, self.text.path)


def repeats(values: Iterable[object], names: Sequence[str]) -> bool:
    """Return whether the values of a line are the names of the columns, in capitals or not.

    Args:
        values: Values of a line.
        names: Names of the columns.

    Examples:
        >>> repeats([" age", "Sex"], ["age", "sex"]), repeats(["41", "f"], ["age", "sex"])
        (True, False)
    """
    return len(names) > 1 and [folded(spelled(str(value))) for value in values] == [*map(folded, names)]


def places_of_names(frame: pd.DataFrame) -> list[int]:
    """Return the places of the rows that repeat the names of the columns, as tables have that were put together.

    Args:
        frame: Table as it was read.

    Examples:
        >>> places_of_names(pd.DataFrame({"age": [41, "Age", 18], "sex": ["f", "sex", "m"]}, dtype=object))
        [1]
    """
    first = frame.iloc[:, 0]
    if is_numeric_dtype(first):
        return []
    name = str(frame.columns[0]).lower()
    alike = first.map(lambda cell: isinstance(cell, str) and cell.strip().lower() == name).astype(bool).to_numpy()
    names = [*map(str, frame)]
    return [place for place in np.flatnonzero(alike).tolist() if repeats(frame.iloc[place], names)]


def without_names(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table without rows that repeat the names of its columns; how many they are is a warning.

    Args:
        frame: Table as it was read.
        path: Its file.
    """
    again = places_of_names(frame)
    if not again:
        return frame
    _log.warning("left out: lines that repeat the names of the columns, %s of %s: was it put together from several "
                 "files?", f"{len(again):,}", path)
    return frame.drop(index=frame.index[again]).reset_index(drop=True)


def open_csv(path: Path, asked: Asked = Asked()) -> CsvFile:  # noqa: B008
    """Return how a table of text is read; see `fedfair.datasets.files.csv_file.layout_of`.

    Raises `FileNotFoundError` or `ValueError` with one sentence that says what is wrong with the file.
    """
    text = text_of(path, asked.encoding)
    with _incomplete_is_refused(path):
        if not any(portion.strip() for portion in text.portions()):
            raise pd.errors.EmptyDataError("it is empty")
        layout = layout_of(text, str(path), asked.separator)
        with text.open() as stream:  # two rows, since pandas takes values without a name for an index
            first = _parsed(stream, layout, nrows=2, header=None)
    names = [spelled(str(name)) for name in first.iloc[0]]
    refuse_repeated(names, path)
    refuse_values(names, path)
    if len(first) < 2:
        raise ValueError(f"{path} has names of columns, but no records below them")
    return CsvFile(text, layout, named(names))


def named(names: Sequence[str]) -> list[str]:
    """Return the names of columns, with one for each that has none.

    Args:
        names: Names in the first line of a file.
    """
    return [name or _FIRST.format(number) for number, name in enumerate(names)]


def read_csv(path: Path, asked: Asked = Asked()) -> tuple[pd.DataFrame, Layout]:  # noqa: B008
    """Read a table of text, and say how its lines became values; see `open_csv`."""
    file = open_csv(path, asked)
    return file.frame(), file.layout


@contextmanager
def _incomplete_is_refused(path: Path) -> Iterator[None]:
    """Raise `ValueError` in place of a parser's errors."""
    try:
        yield
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path} is not a complete CSV file ({str(error).strip()}): check that it was copied whole, "
                         "that no row has more values than the first line has names, and that the first line holds the "
                         "names; if its separator was mistaken, give the setting separator") from error


def _parsed(text: TextIO, layout: Layout, **rows: Any) -> Any:
    """Return the values of lines as text, by default of all below the names."""
    return pd.read_csv(text, sep=r"\s+" if layout.separator == " " else layout.separator, quotechar=layout.quote,
                       escapechar=layout.escape, doublequote=layout.escape is None, skiprows=layout.skip,
                       skipinitialspace=True, dtype=str, keep_default_na=False, na_filter=False,
                       **{"header": 0, **rows})


def refuse_repeated(names: Sequence[str], path: Path) -> None:
    """Raise `ValueError` if two columns have the same name: nobody could say which is meant.

    Args:
        names: Names of the columns.
        path: Their file.
    """
    twice = repeated(filter(None, names))
    if twice is not None:
        raise ValueError(f"{path} names column {twice!r} more than once: give each column a name of its own, or remove "
                         "the repeated one")


def refuse_values(names: Sequence[str], path: Path) -> None:
    """Raise `ValueError` if the first line seems to hold values: a number with decimals is nobody's name.

    Args:
        names: Names of the columns.
        path: Their file.
    """
    for name in names:
        if name and not name.isdigit() and plain(name, ".") and not name.startswith("("):
            raise ValueError(f"the first line of {path} has {name!r}, as a line of values has: put a line with the "
                             "names of the columns above it")
