"""Data in memory, written to a file for as long as they are needed: every process of a run reads that file.

The file is in the user's cache, where nobody else can read it, and is gone when the program ends, or before; that of a
program that was killed is when the next one writes a table.

Rows of a data set of Ray, which may lie in many files and on many machines, in a file on this one.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Sequence
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

from fedfair.datasets.columns.cell import repeated, spelled
from fedfair.datasets.columns.tidy import with_columns
from fedfair.datasets.files.data_frames import in_order, of_no_type, table_of
from fedfair.datasets.files.query import Query
from fedfair.datasets.files.table_file import codes_of_parquet, named_by_itself, plain_value

_ROWS = 2**16  # of a batch, the most that is in memory at a time
_ERRORS = (TypeError, ValueError, OverflowError, NotImplementedError)  # pyarrow's are of these kinds


def write_batches(data: Any, path: Path) -> None:
    """Write the rows of a data set of Ray to a Parquet file, in their order, with types that hold all of its blocks.

    Blocks may differ in what they hold, nothing but gaps, whole numbers, or other numbers, and in the order of columns;
    where one lacks a column, its values are missing, as Ray has it.

    Args:
        data: A `ray.data.Dataset`.
        path: The file.

    Raises:
        ValueError: If it has no rows, or the values of a column are of several kinds that no type holds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with in_order(data), TemporaryDirectory(dir=path.parent) as folder:
        # Blocks as they are, each read once: to put them together Ray has rules of its own, and errors of many lines.
        blocks = filter(len, data.iter_batches(batch_size=None, batch_format="pyarrow"))
        try:
            alike = groupby(map(_without_objects, blocks), key=lambda block: block.schema)
            parts = [_write_part(schema, rows, Path(folder) / f"{number}.parquet")
                     for number, (schema, rows) in enumerate(alike)]
            if not parts:
                raise ValueError("the data set of Ray has no rows")
            schema = _with_codes(pa.unify_schemas([*map(pq.read_schema, parts)], promote_options="permissive"), parts)
            with pq.ParquetWriter(path, schema) as file:
                for batch in chain.from_iterable(pq.ParquetFile(part).iter_batches(_ROWS) for part in parts):
                    file.write_table(_of_schema(batch, schema))
        except (pa.ArrowException, ValueError) as error:
            if type(error) is ValueError:
                raise
            raise ValueError(f"the data set of Ray cannot be written ({str(error).strip().splitlines()[0]}): make the "
                             "values of each column of one kind in all its files") from error


def _with_codes(schema: Any, parts: Sequence[Path]) -> Any:
    """Return the types of columns, with those that a part declares as codes of categories as such: files of Parquet
    give them back as plain numbers.
    """
    import pyarrow as pa

    for name in {*chain.from_iterable(map(codes_of_parquet, parts))}:
        place = schema.get_field_index(name)
        schema = schema.set(place, pa.field(name, pa.dictionary(pa.int32(), schema.field(place).type)))
    return schema


def _of_schema(batch: Any, schema: Any) -> Any:
    """Return a batch with the columns of a schema, in its order; one that is not there is missing."""
    import pyarrow as pa

    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = batch.column(name) if name in batch.schema.names else pa.nulls(len(batch))
        are_codes = pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type)
        columns.append(column.cast(kind.value_type).dictionary_encode() if are_codes else column.cast(kind))
    return pa.Table.from_arrays(columns, schema=schema)


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

    twice = repeated(map(spelled, schema.names))
    if twice is not None:
        raise ValueError(f"the data set of Ray names column {twice!r} more than once: give each column a name of its "
                         "own")
    with pq.ParquetWriter(path, schema) as file:
        for batch in batches:
            file.write_table(batch)
    return path


def written(frame: Any) -> Path:
    """Write a table to a file of the user's cache, which only that user can read, and return its path.

    The same table is the same file within one program; the file is removed when the program ends.

    Args:
        frame: Table as `files.data_frames.as_pandas` takes it. A column with several kinds of values is written as
            text. An index is left out unless it has a name. Or a data set of Ray, whose rows are written some at a
            time, in their order; or a `files.query.Query`.

    Returns:
        Path of the Parquet file.

    Raises:
        ValueError: If a column holds lists, or what Arrow has no type for, or a data set of Ray values of several
            kinds.
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
        _refuse_nested(path)
    except BaseException:
        rmtree(folder)
        raise
    earlier = next((other for other in sorted(_held) if cmp(other, path, shallow=False)), None)
    if earlier is not None:
        rmtree(folder)
        return earlier
    _held[path] = os.getpid()
    return path


def _refuse_nested(path: Path) -> None:
    """Raise `ValueError` if a column of a table in memory is one of lists; its file, which will be gone, is unnamed."""
    import pyarrow.parquet as pq
    from pyarrow.types import is_nested

    for field in pq.read_schema(path):
        if is_nested(field.type):
            raise ValueError(f"column {field.name!r} of the table holds lists, not one value for each record: remove "
                             "it")


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

    if of_no_type(column):
        return False
    try:
        pa.array(column, from_pandas=True)
    except _ERRORS:
        return False
    return True


def _text(cell: Any) -> str | None:
    """Return a cell of a column of several kinds as text that is read as the cell is in a column of its own kind.

    What is no single value is missing, so that no record decides whether the table can be written.
    """
    value = named_by_itself(plain_value(cell))
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return str(value) if isinstance(value, int | float | np.generic) else None
