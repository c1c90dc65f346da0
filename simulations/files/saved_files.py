"""Files of a result's folder: tables and weights as they are written, and everything as it is read back.

A spreadsheet may open a table: names from data are not taken for formulas. A file that was cut, or has another shape
than was written, is named. Nothing here says what a file means; its one reader does, beside what writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedfair.datasets.columns.cell import from_spreadsheet_cell, spreadsheet_cell
from fedfair.plugins.text_values import read_toml

_NUMBER = re.compile(r"os error (\d+)")
_WHOLE = "check that it was copied whole, from where fedfair wrote it"


def to_csv(frame: pd.DataFrame) -> str:
    """Write a table without its index; text that starts like a formula gets an apostrophe in front."""
    return _mapped(frame, spreadsheet_cell).to_csv(index=False)


def from_csv(path: Path) -> pd.DataFrame:
    """Read a table that `to_csv` wrote, with the names as they were."""
    return _mapped(pd.read_csv(path), from_spreadsheet_cell)


def _mapped(frame: pd.DataFrame, change: Callable[[object], object]) -> pd.DataFrame:
    """Change the names of a table's columns, and the cells of those that are no numbers."""
    columns = [column if is_numeric_dtype(column) else column.map(change) for _, column in frame.items()]
    changed = pd.concat(columns, axis=1) if columns else frame
    return changed.rename(columns=change)


def save_tensors(tensors: Mapping[str, Tensor], file: Path, described: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file of safetensors.

    Args:
        tensors: By name; contiguous.
        file: The file.
        described: What it says of them.

    Raises:
        OSError: If it cannot be written, as on a full disk; safetensors has an error of its own for that.
    """
    try:
        save_file(dict(tensors), file, None if described is None else dict(described))
    except SafetensorError as error:
        number = _NUMBER.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def saved_table(path: Path, needed: Sequence[str], **options: Any) -> pd.DataFrame:
    """Read a table that was written as Parquet or CSV, as the end of its name says, with the names as they were.

    Args:
        path: File.
        needed: Columns that it must have.
        options: What `pandas.read_csv` takes besides.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it cannot be read, or lacks a column.
    """
    with _named(path):
        table = (pd.read_parquet(path) if path.suffix == ".parquet" else
                 _mapped(pd.read_csv(path, **options), from_spreadsheet_cell))
    absent = [name for name in needed if name not in table.columns]
    if absent:
        raise ValueError(f"{path} has no column {', '.join(map(repr, absent))}: {_WHOLE}")
    return table


def saved_toml(path: Path, needed: Mapping[str, Any]) -> dict[str, Any]:
    """Read entries that were written as TOML.

    Args:
        path: File.
        needed: Entries that it must have, each with its type, or its types.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it cannot be read, or lacks an entry.
    """
    values = read_toml(path)
    for name, kinds in needed.items():
        if name not in values:
            raise ValueError(f"{path} has no entry {name!r}: {_WHOLE}")
        if not isinstance(values[name], kinds):
            raise other_shape(path, TypeError(f"{name} is {values[name]!r}"))
    return values


@contextmanager
def saved_weights(path: Path) -> Iterator[Any]:
    """Yield an open file of weights.

    Args:
        path: File.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it cannot be read.
    """
    with _named(path):
        opened = safe_open(str(path), "pt")
    try:
        with opened as saved:
            yield saved
    except SafetensorError as error:
        raise other_shape(path, error) from None


def other_shape(path: Path, error: Exception) -> ValueError:
    """Return the error for a file that can be read, but does not hold what it should.

    Args:
        path: File.
        error: What came of reading it.
    """
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    else:
        said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) and error.args else str(error)
    line = next(iter(said.strip().splitlines()), type(error).__name__)
    return ValueError(f"{path} does not hold what fedfair writes there ({line}): {_WHOLE}")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raise `ValueError` with the file's name in place of what readers of broken files raise."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # of the system, not of the file's content
            raise
        raise other_shape(path, error) from None
    except (SafetensorError, ValueError) as error:
        raise other_shape(path, error) from None
