"""Rows of a data set of Ray, which may lie in many files and on many machines, in a file on this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

_ROWS = 2**16  # of a batch, the most that is in memory at a time


def write_batches(data: Any, path: Path) -> None:
    """Write the rows of a data set of Ray to a Parquet file, in their order.

    Args:
        data: A `ray.data.Dataset`.
        path: The file.

    Raises:
        ValueError: If it has no rows, or the values of a column are of several kinds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _in_order(data):
        batches = iter(data.iter_batches(batch_size=_ROWS, batch_format="pyarrow"))  # which reads the rows once
        first = next(batches, None)
        if first is None:
            raise ValueError("the data set of Ray has no rows")
        try:
            with pq.ParquetWriter(path, first.schema) as file:
                for batch in chain([first], batches):
                    file.write_table(batch.cast(first.schema))
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"the data set of Ray cannot be written ({str(error).strip().splitlines()[0]}): make the "
                             "values of each column of one kind in all its files") from error


@contextmanager
def _in_order(data: Any) -> Iterator[None]:
    """Let a data set yield its rows in their order, as a seeded fit needs."""
    options = data.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before
