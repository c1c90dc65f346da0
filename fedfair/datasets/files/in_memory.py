"""Data in memory, written to a file for as long as they are needed: every process of a run reads that file.

The file is in the user's cache, where nobody else can read it, and is gone when the program ends, or before; that of a
program that was killed is when the next one writes a table.

Rows of a data set of Ray, which may lie in many files and on many machines, in a file on this one.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from filecmp import cmp
from glob import escape
from itertools import chain, groupby
from pathlib import Path
from platform import node
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import pooch
import psutil
from numpy.typing import ArrayLike
from pandas.api.types import is_timedelta64_dtype
from torch.utils.data import Dataset

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.tidy import with_columns
from fedfair.datasets.files.query import Query
from fedfair.datasets.files.table_file import named_by_itself, of_arrow, plain_value
from fedfair.datasets.names import value_name

_ROWS = 2**16  # of a batch, the most that is in memory at a time
_ERRORS = (TypeError, ValueError, OverflowError, NotImplementedError)  # pyarrow's are of these kinds


def write_batches(data: Any, path: Path) -> None:
    """Write the rows of a data set of Ray to a Parquet file, in their order, with types that hold all of its blocks.

    Blocks may differ in what they hold: nothing but gaps, whole numbers, or other numbers.

    Args:
        data: A `ray.data.Dataset`.
        path: The file.

    Raises:
        ValueError: If it has no rows, or the values of a column are of several kinds that no type holds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _in_order(data), TemporaryDirectory(dir=path.parent) as folder:
        batches = data.iter_batches(batch_size=_ROWS, batch_format="pyarrow")  # which reads the rows once
        try:
            alike = groupby(map(_without_objects, batches), key=lambda batch: batch.schema)
            parts = [_write_part(schema, rows, Path(folder) / f"{number}.parquet")
                     for number, (schema, rows) in enumerate(alike)]
            if not parts:
                raise ValueError("the data set of Ray has no rows")
            schema = pa.unify_schemas([*map(pq.read_schema, parts)], promote_options="permissive")
            with pq.ParquetWriter(path, schema) as file:
                for batch in chain.from_iterable(pq.ParquetFile(part).iter_batches(_ROWS) for part in parts):
                    file.write_table(pa.Table.from_batches([batch]).cast(schema))
        except (pa.ArrowException, ValueError) as error:
            if type(error) is ValueError:
                raise
            raise ValueError(f"the data set of Ray cannot be written ({str(error).strip().splitlines()[0]}): make the "
                             "values of each column of one kind in all its files") from error


def _without_objects(batch: Any) -> Any:
    """Return a batch of Arrow with plain values where Ray pickles those of a column, as texts with a gap."""
    import pyarrow as pa

    for place, field in enumerate(batch.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            plain = pa.array(batch.column(place).to_pylist(), from_pandas=True)
            batch = batch.set_column(place, field.name, plain)
    return batch


def _write_part(schema: Any, batches: Iterable[Any], path: Path) -> Path:
    """Write batches with the same columns of the same types to a file, and return its path."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema) as file:
        for batch in batches:
            file.write_table(batch)
    return path


@contextmanager
def _in_order(data: Any) -> Iterator[None]:
    """Let a data set yield its rows in their order, as a seeded fit needs."""
    options = data.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def written(frame: Any) -> Path:
    """Write a table to a file of the user's cache, which only that user can read, and return its path.

    The same table is the same file within one program; the file is removed when the program ends.

    Args:
        frame: Table as `as_pandas` takes it. A column with several kinds of values is written as text. An index is
            left out unless it has a name. Or a data set of Ray, whose rows are written some at a time, in their order;
            or a `files.query.Query`.

    Returns:
        Path of the Parquet file.

    Raises:
        ValueError: If a column holds what Arrow has no type for, or a data set of Ray values of several kinds.
    """
    tables = _tables()
    tables.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left(tables)
    folder = Path(mkdtemp(prefix=f"{_of_machine()}{os.getpid()}-", dir=tables))  # which only this user can read
    path = folder / FILE
    path.touch(mode=0o600)
    try:
        if isinstance(frame, Query):
            frame.write(path)
        else:
            (write_batches if hasattr(frame, "iter_batches") else _write)(frame, path)
    except BaseException:
        rmtree(folder)
        raise
    earlier = next((other for other in sorted(_held) if cmp(other, path, shallow=False)), None)
    if earlier is not None:
        rmtree(folder)
        return earlier
    _held[path] = os.getpid()
    return path


def files_of_this_process() -> list[Path]:
    """Return the files with data in memory that this process wrote, and that are still there."""
    return sorted(_tables().glob(f"{escape(_of_machine())}{os.getpid()}-*/*"))


def _tables() -> Path:
    """Return the folder for data in memory, in the user's cache."""
    return Path(pooch.os_cache("fedfair")) / "tables"


def _of_machine() -> str:
    """Return how the names of this machine's folders begin, before the number of the process that each belongs to."""
    return f"{node()}-"


def _remove_left(tables: Path) -> None:
    """Remove what processes of this machine left that were killed before they could."""
    for folder in tables.glob(f"{escape(_of_machine())}*"):
        number = folder.name.removeprefix(_of_machine()).partition("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            rmtree(folder, ignore_errors=True)


FILE = "table.parquet"
"""Name of the file: results name it, and another one would tell equal tables from others."""

_held: dict[Path, int] = {}
"""Files with data in memory, and the process that wrote each: its children do not own them."""


@contextmanager
def removed_after() -> Iterator[None]:
    """Remove the files that are written meanwhile, by `written`, afterwards."""
    before = {*_held}
    try:
        yield
    finally:
        _remove([path for path in _held if path not in before])


def _remove(paths: Sequence[Path]) -> None:
    """Remove files of this process, each with its folder."""
    for path in paths:
        if _held.pop(path) == os.getpid():
            rmtree(path.parent, ignore_errors=True)


@atexit.register
def _remove_all() -> None:
    """Remove all files of this process."""
    _remove([*_held])


def as_arrow(table: Any) -> Any:
    """Return a table of polars, DuckDB, or another library that gives Arrow's, as one of Arrow; else what is given.

    Args:
        table: Table, which may be lazy or a stream, or anything else.
    """
    import pyarrow as pa

    if isinstance(table, pd.DataFrame | pa.Table):
        return table
    table = table.collect() if hasattr(table, "collect") and hasattr(table, "lazy") else table
    table = table.to_arrow() if hasattr(table, "to_arrow") else table
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        return table
    try:
        return pa.table(table)
    except (pa.ArrowException, ValueError):  # a column alone
        return table


def as_pandas(table: Any) -> Any:
    """Return a table of polars, Arrow, DuckDB or pandas as one of pandas of plain types, as `written` takes it.

    Whole numbers stay exact whichever others are missing. An interval, as `pandas.cut` makes them, is a category named
    by its text; a period is the moment at which it begins. What is no table is returned as it is.

    Args:
        table: Table, or array; columns as a dict of lists or arrays; rows as a list of dicts, or a structured array.

    Examples:
        >>> as_pandas(pd.DataFrame({"age": pd.cut([20, 40, 60], [0, 30, 90])}))["age"].tolist()
        ['(0, 30]', '(30, 90]', '(30, 90]']
        >>> as_pandas([{"age": 20, "sex": "f"}, {"age": None, "sex": "m"}])["age"].tolist()
        [20, None]
    """
    import pyarrow as pa

    table = as_arrow(_of_python(table))
    table = of_arrow(table) if isinstance(table, pa.Table) else table
    frame = table.to_pandas() if hasattr(table, "to_pandas") else table
    if not isinstance(frame, pd.DataFrame):
        return frame
    plain = {place: _plain_type(frame.iloc[:, place]) for place in range(frame.shape[1])}
    changed = {place: column for place, column in plain.items() if column is not None}
    return pd.concat([changed.get(place, frame.iloc[:, place]) for place in plain], axis=1) if changed else frame


def _of_python(table: Any) -> Any:
    """Return columns or rows of Python's own, or a structured array, as a table of pandas; else what is given.

    Python's values stay what they are, so that none is another number for what stands beside it.
    """
    if isinstance(table, Mapping) and all(isinstance(values, list | tuple | np.ndarray | pd.Series)
                                          for values in table.values()):
        return pd.DataFrame({name: pd.Series(values, dtype=object) if isinstance(values, list | tuple) else values
                             for name, values in table.items()})
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        return pd.DataFrame([*table], dtype=object)
    return pd.DataFrame(table) if isinstance(table, np.ndarray) and table.dtype.names else table


def table_of(given: Any) -> pd.DataFrame:
    """Return a table as `as_pandas` does; raise `ValueError` for what is none.

    Args:
        given: Table.
    """
    table = as_pandas(given)
    if not isinstance(table, pd.DataFrame):
        raise no_table(given)
    return table


def table_or_array(given: Any) -> Any:
    """Return a table as `as_pandas` does, or an array or nested lists as they are; raise `ValueError` for what is none
    of these: a column or row of pandas, a single value.

    Args:
        given: Rows.

    Examples:
        >>> table_or_array([[1.0, 2.0]]), table_or_array({"age": [20]})["age"].tolist()
        ([[1.0, 2.0]], [20])
    """
    rows = as_pandas(given)
    if isinstance(rows, pd.Series) or not (rows.shape if hasattr(rows, "shape") else np.asarray(rows).shape):
        raise no_table(given)
    return rows


def no_table(given: Any) -> ValueError:
    """Return the error for what is given in place of a table.

    Args:
        given: What is given.
    """
    kind = type(given).__name__
    return ValueError(f"the rows are {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}, which is no table: give a "
                      "DataFrame of pandas or polars, a table of Arrow, a relation of DuckDB, a dict with a list for "
                      "each column, or a list with a dict for each row, also for one row")


def _plain_type(column: pd.Series) -> pd.Series | None:
    """Return a column of intervals as text, one of periods as moments, and categories of durations, or of several
    kinds, as plain values; None for any other, which is plain.
    """
    kind = column.cat.categories.dtype if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype
    if isinstance(kind, pd.PeriodDtype):
        moments: pd.Series = column.astype(kind).dt.to_timestamp()
        return moments
    if isinstance(kind, pd.IntervalDtype):
        return column.astype(object).map(_interval_text, na_action="ignore").astype(object)
    if kind is column.dtype or not (is_timedelta64_dtype(kind) or _of_no_type(column.cat.categories)):
        return None
    return column.astype(kind)


def _interval_text(interval: pd.Interval) -> str:
    """Return an interval as text, whose ends have no decimals where they are whole: a gap makes doubles of all."""
    low, high = value_name(interval.left), value_name(interval.right)
    return f"{'[' if interval.closed_left else '('}{low}, {high}{']' if interval.closed_right else ')'}"


def _write(frame: Any, path: Path) -> None:
    """Write a table in memory to a file.

    Raises `ValueError` for what is no table, or Arrow has no column for, and for a name that two columns have.
    """
    frame = table_of(frame)
    frame = frame.set_axis([spelled(str(name)) for name in frame], axis=1)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"the table names column {twice[0]!r} more than once: give each column a name of its own")
    mixed = {name: column.map(_text, na_action="ignore").astype("string") for name, column in frame.items()
             if column.dtype == object and not _is_of_one_kind(column)}
    try:
        with_columns(frame, mixed).to_parquet(path, index=frame.index.names != [None])
    except _ERRORS as error:
        raise ValueError(f"the table cannot be written ({str(error).strip().splitlines()[0]}): make the values of each "
                         "column of one kind, for example text") from error


def _is_of_one_kind(column: pd.Series) -> bool:
    """Return whether all cells of a column of objects are of one kind, which Arrow has a type for.

    Of several kinds Arrow may take numbers for moments, and truth values for numbers. Moments, durations and times
    are none either: their column declares nothing, so that one more text in it is no other type.
    """
    import pyarrow as pa

    if _of_no_type(column):
        return False
    try:
        pa.array(column, from_pandas=True)
    except _ERRORS:
        return False
    return True


def _of_no_type(values: pd.Series | pd.Index) -> bool:
    """Return whether objects are of several kinds, or moments, durations or times."""
    return values.dtype == object and pd.api.types.infer_dtype(values, skipna=True) in (
        "mixed", "mixed-integer", "date", "datetime", "datetime64", "time", "timedelta", "timedelta64")


def _text(cell: Any) -> str | None:
    """Return a cell of a column of several kinds as text that is read as the cell is in a column of its own kind.

    What is no single value is missing, so that no record decides whether the table can be written.
    """
    value = named_by_itself(plain_value(cell))
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return str(value) if isinstance(value, int | float | np.generic) else None


def frame_of(x: ArrayLike, y: Sequence[Any] | ArrayLike, group: Sequence[Any] | ArrayLike) -> pd.DataFrame:
    """Make a table of arrays, with the columns x0, x1, ..., "label" and "group".

    Args:
        x: Features `[n, features]`.
        y: Labels `[n]`.
        group: Names or numbers of the groups `[n]`.

    Returns:
        Table of n rows.

    Raises:
        ValueError: If x is not of two dimensions, or the lengths differ.
    """
    features, labels, groups = np.asarray(x), np.asarray(y), np.asarray(group)
    if features.ndim != 2 or not len(features) == len(labels) == len(groups):
        raise ValueError(f"x, y and group have the shapes {features.shape}, {labels.shape} and {groups.shape}: give x "
                         "as [n, features], and n labels and groups")
    frame = pd.DataFrame(features, columns=[f"x{number}" for number in range(features.shape[1])])
    return frame.assign(label=labels, group=groups)


def frame_of_dataset(data: Any) -> pd.DataFrame:
    """Make a table of a torch data set whose examples are (features, label, group); see `frame_of`.

    Args:
        data: Examples: features `[features]`, a label and a group each.

    Returns:
        Table of a row for each example.

    Raises:
        ValueError: If the examples are of another form.
    """
    by_number = isinstance(data, Dataset) and isinstance(data, Sized)  # a torch data set need not end as a list does
    examples = [data[number] for number in range(len(data))] if by_number else list(data)
    if not examples or any(not isinstance(each, tuple | list) or len(each) != 3 for each in examples):
        raise ValueError("an example is not (features, label, group): give a data set whose examples are")
    x, y, group = zip(*examples, strict=True)
    return frame_of([np.asarray(each).reshape(-1) for each in x], [_single(each) for each in y],
                    [_single(each) for each in group])


def _single(value: Any) -> Any:
    """Return a label or group as a plain value."""
    return value.item() if hasattr(value, "item") else value
