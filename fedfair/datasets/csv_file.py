"""Reading a CSV file of the user's: its separator, its names of columns, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table from a file with commas, semicolons or tabs between values.

    Raises `FileNotFoundError` or `ValueError` with one sentence that says what is wrong with the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder: name a file in it" if path.is_dir() else
                                f"there is no file {path}")
    try:
        with path.open(encoding="utf-8") as file:
            separator = max(",;\t", key=file.readline().count)
        _refuse_repeated(_header(path, separator), path)
        frame = pd.read_csv(path, sep=separator, skipinitialspace=True, low_memory=False)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error}): save it as CSV in UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path} is not a complete CSV file ({str(error).strip()}): check that it was copied whole, "
                         "and that no row has more values than the first line has names") from error
    if frame.empty:
        raise ValueError(f"{path} has names of columns, but no records below them")
    return frame


def _header(path: Path, separator: str) -> pd.Series:
    """Return the names of a file's columns, "" where there is none; raise `ParserError` if its first row has more
    values than names.
    """
    # read as two rows, since pandas takes values without a name for an index and shifts the columns
    return pd.read_csv(path, sep=separator, skipinitialspace=True, header=None, nrows=2, dtype=str,
                       keep_default_na=False).iloc[0]


def _refuse_repeated(names: pd.Series, path: Path) -> None:
    """Raise `ValueError` if two columns have the same name: pandas would rename the second."""
    repeated = names[(names != "") & names.duplicated()]
    if not repeated.empty:
        raise ValueError(f"{path} names column {repeated.iloc[0]!r} more than once: give each column a name of its "
                         "own, or remove the repeated one")
