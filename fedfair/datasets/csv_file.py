"""Reading a file of text with a table: its separator, its names of columns, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pandas as pd

from fedfair.datasets.reading import Asked
from fedfair.datasets.separators import Layout, layout_of
from fedfair.datasets.spelling import spelled
from fedfair.datasets.text_file import Text, text_of
from fedfair.datasets.written_numbers import plain

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
        """Return the values of all lines below the names, as text; raise `ValueError` for an incomplete file."""
        with _incomplete_is_refused(self.text.path), self.text.open() as text:
            return self._named(_parsed(text, self.layout))

    def frames(self, rows: int) -> Iterator[pd.DataFrame]:
        """Yield the same, some rows at a time.

        Args:
            rows: Number of rows.
        """
        with _incomplete_is_refused(self.text.path), self.text.open() as text:
            yield from map(self._named, _parsed(text, self.layout, chunksize=rows))

    def _named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return values with the names of their columns."""
        return frame.set_axis(self.names, axis=1)


def open_csv(path: Path, asked: Asked = Asked()) -> CsvFile:  # noqa: B008
    """Return how a table of text is read; see `fedfair.datasets.separators.layout_of`.

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
    _refuse_repeated(names, path)
    _refuse_values(names, path)
    if len(first) < 2:
        raise ValueError(f"{path} has names of columns, but no records below them")
    return CsvFile(text, layout, [name or _FIRST.format(n) for n, name in enumerate(names)])


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


def _refuse_repeated(names: list[str], path: Path) -> None:
    """Raise `ValueError` if two columns have the same name: nobody could say which is meant."""
    for name in names:
        if name and names.count(name) > 1:
            raise ValueError(f"{path} names column {name!r} more than once: give each column a name of its own, or "
                             "remove the repeated one")


def _refuse_values(names: list[str], path: Path) -> None:
    """Raise `ValueError` if the first line seems to hold values: a number with decimals is nobody's name."""
    for name in names:
        if name and not name.isdigit() and plain(name, ".") and not name.startswith("("):
            raise ValueError(f"the first line of {path} has {name!r}, as a line of values has: put a line with the "
                             "names of the columns above it")
