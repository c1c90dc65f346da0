"""Reading a Parquet file some rows at a time, with the types that its columns have if it is read whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from pandas.api.types import is_bool_dtype, is_extension_array_dtype, is_integer_dtype, is_numeric_dtype

from fedfair.datasets.spelling import spelled
from fedfair.datasets.table_file import plain_names, plain_values

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_log = logging.getLogger(__name__)


class ParquetFile(NamedTuple):
    """A Parquet file whose columns are known.

    Args:
        path: File.
        names: Names of the columns.
        with_gaps: Those of which some value is missing, which decides the type of a column.
    """

    path: Path
    names: list[str]
    with_gaps: frozenset[str]

    def frames(self, rows: int) -> Iterator[pd.DataFrame]:
        """Yield the rows, some at a time.

        Args:
            rows: Most rows of a chunk.
        """
        for frame in _frames(self.path, rows):
            yield pd.DataFrame({name: _typed(plain_values(column), str(name) in self.with_gaps)
                                for name, column in frame.items()})


def open_parquet(path: Path) -> ParquetFile | None:
    """Return how a Parquet file is read in chunks; None, with a warning, if it has to be read whole.

    Args:
        path: File.

    Raises:
        ValueError: If it cannot be read, has no records, or names a column twice.
    """
    with _opened(path) as file:
        schema, records = file.schema_arrow, file.metadata.num_rows
    for field in schema:
        if not _is_plain(field.type):
            _log.warning("%s is read whole, since its column %r holds values of the type %s", path, field.name,
                         field.type)
            return None
    if not records:
        raise ValueError(f"{path} has no records")
    return ParquetFile(path, [*map(str, next(_frames(path, 1)))], _with_gaps(path, schema))


def _with_gaps(path: Path, schema: pa.Schema) -> frozenset[str]:
    """Return the columns of whole numbers or truth values with a missing value."""
    import pyarrow.types as types

    found: set[str] = set()
    asked = [field.name for field in schema if types.is_integer(field.type) or types.is_boolean(field.type)]
    with _opened(path) as file:
        for batch in file.iter_batches(columns=asked) if asked else ():
            found |= {spelled(name) for name, column in zip(batch.schema.names, batch.columns, strict=True)
                      if column.null_count}
    return frozenset(found)


def _frames(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file as pandas takes them."""
    import pyarrow as pa

    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield plain_names(pa.Table.from_batches([batch]).to_pandas(), path)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Yield a file; raise `ValueError` in place of the errors of a broken one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read as parquet ({str(error).strip().splitlines()[0]}): check that it was "
                         "copied whole") from error


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether pandas takes each value of a type for itself, whatever the others are."""
    import pyarrow.types as types

    checks = (types.is_integer, types.is_float32, types.is_float64, types.is_boolean, types.is_string,
              types.is_large_string, types.is_string_view, types.is_timestamp, types.is_date32, types.is_null)
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    return any(check(kind) for check in checks)


def _typed(column: pd.Series, has_gaps: bool) -> pd.Series:
    """Return a column of a chunk with the type that the whole column has."""
    if not has_gaps:
        return column
    if is_extension_array_dtype(column.dtype):
        return column.astype("float64") if is_numeric_dtype(column.dtype) else column
    if is_bool_dtype(column):
        return column.astype(object)
    return column.astype("float64") if is_integer_dtype(column) else column
