"""Reading a file of text with a table: its separator, its names of columns, and what is wrong with it."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from fedfair.datasets.reading import Asked
from fedfair.datasets.separators import Layout, layout_of
from fedfair.datasets.spelling import spelled
from fedfair.datasets.text_file import read_text
from fedfair.datasets.written_numbers import plain

_FIRST = "Unnamed: {}"


def read_csv(path: Path, asked: Asked = Asked()) -> tuple[pd.DataFrame, Layout]:  # noqa: B008
    """Read a table of text, and say how its lines became values; see `fedfair.datasets.separators.layout_of`.

    Raises `FileNotFoundError` or `ValueError` with one sentence that says what is wrong with the file.
    """
    text = read_text(path, asked.encoding)
    try:
        if not text.strip():
            raise pd.errors.EmptyDataError("it is empty")
        layout = layout_of(text, str(path), asked.separator)
        names = _names(text, layout)
        _refuse_repeated(names, path)
        _refuse_values(names, path)
        frame = _parsed(text, layout, None)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path} is not a complete CSV file ({str(error).strip()}): check that it was copied whole, "
                         "that no row has more values than the first line has names, and that the first line holds the "
                         "names; if its separator was mistaken, give the setting separator") from error
    if frame.empty:
        raise ValueError(f"{path} has names of columns, but no records below them")
    return frame.set_axis([name or _FIRST.format(n) for n, name in enumerate(names)], axis=1), layout


def _parsed(text: str, layout: Layout, rows: int | None) -> pd.DataFrame:
    """Return the values of all lines below the names as text, or those of the first `rows` lines with the names."""
    return pd.read_csv(io.StringIO(text), sep=r"\s+" if layout.separator == " " else layout.separator,
                       quotechar=layout.quote, escapechar=layout.escape, doublequote=layout.escape is None,
                       skiprows=layout.skip, skipinitialspace=True, dtype=str, keep_default_na=False, na_filter=False,
                       nrows=rows, header=0 if rows is None else None)


def _names(text: str, layout: Layout) -> list[str]:
    """Return the names of the columns, "" where there is none; raise `ParserError` if the first row has more values
    than names.
    """
    # read as two rows, since pandas takes values without a name for an index and shifts the columns
    return [spelled(str(name)) for name in _parsed(text, layout, 2).iloc[0]]


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
