"""Neighbours of a file with a table: files that differ from it in one row, in every way that its format allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedfair.datasets.files.row_file import open_rows
from fedfair.datasets.files.table_file import is_text

CELLS = ("", '"', "'", "\\", '24"', "0,5", "1.234", "1e308", "-1e308", "inf", "007", "x", "TRUE", "2020-01-01", "$5",
         "5%")
"""What is written into a cell of a file of text."""

LINES = {"a blank line": b"", "an open quote": b'"24', "a lone quote": b'24"', "too many values": b",;|\t" * 20,
         "bytes that are no text": b"\xff\xfe\xff", "a zero": b"a\0b", "a line that names a separator": b"sep=;"}
"""What is written in place of a whole line."""

_ROWS = 2  # of the table, which are changed


class Neighbour(NamedTuple):
    """A file, and in words how it differs from the table; the table itself differs in nothing.

    Attributes:
        name: What is changed.
        path: The file.
        steps: 1 if the row is empty, 2 if it is another one: emptied, then filled again.
    """

    name: str
    path: Path
    steps: int = 2


def neighbours(file: Path, folder: Path, label: str, group: str, seed: int) -> Iterator[Neighbour]:
    """Write the table and its neighbours into folders of their own, and yield them, the table first.

    Names of columns, groups and classes are public, so cells of labels and groups are only emptied, with their row.

    Args:
        file: Text or Parquet.
        folder: Where they are written, each under the name of the file.
        label: Column of the label.
        group: Column of the group.
        seed: Decides which rows are changed.

    Raises:
        ValueError: For a file of another format.
    """
    if is_text(file):
        yield from _of_text(file, folder, {label, group}, label, seed)
    elif file.suffix.lower() in (".parquet", ".pq"):
        yield from _of_parquet(file, folder, {label, group}, label, seed)
    else:
        raise ValueError(f"{file} is neither text nor Parquet, of which neighbours can be made: save it as one of "
                         "these")


def _at(folder: Path, number: int, file: Path) -> Path:
    """Return the path of a neighbour, whose name is the table's."""
    (folder / str(number)).mkdir()
    return folder / str(number) / file.name


def _of_text(file: Path, folder: Path, roles: set[str], label: str, seed: int) -> Iterator[Neighbour]:
    """Yield neighbours of a file of text, which have other bytes in one line."""
    opened = open_rows(file)
    lines, first = file.read_bytes().splitlines(), opened.layout.skip + 1
    mark = opened.layout.separator.encode()
    changes: list[tuple[str, int, bytes]] = []
    for row in np.random.default_rng(seed).choice(np.arange(first, len(lines)), _ROWS, replace=False).tolist():
        changes += [(f"line {row + 1} is {name}", row, line) for name, line in LINES.items()]
        cells = lines[row].split(mark)
        if len(cells) == len(opened.names):
            for place, name in enumerate(opened.names):
                written = ("",) if name == label else CELLS if name not in roles else ()
                changes += [(f"{name} in line {row + 1} is {cell!r}", row, mark.join(
                    [*cells[:place], cell.encode(), *cells[place + 1:]])) for cell in written]
    for number, (name, row, line) in enumerate([("the table", first, lines[first]), *changes]):
        path = _at(folder, number, file)
        path.write_bytes(b"\n".join([*lines[:row], line, *lines[row + 1:]]) + b"\n")
        yield Neighbour(name, path, 2 if line.strip() else 1)


def _of_parquet(file: Path, folder: Path, roles: set[str], label: str, seed: int) -> Iterator[Neighbour]:
    """Yield neighbours of a Parquet file, which have another value of the column's type in one row, or none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    changes: list[tuple[str, Sequence[str], int, object]] = [("the table", (), 0, None)]
    for row in np.random.default_rng(seed).choice(table.num_rows, _ROWS, replace=False).tolist():
        changes.append((f"row {row + 1} is empty", table.column_names, row, None))
        for column in table.schema:
            texts = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            extreme = "0,5" if texts else 2**31 - 1 if pa.types.is_integer(column.type) else None
            values = (None,) if column.name == label else () if column.name in roles else (None, extreme)
            changes += [(f"{column.name} in row {row + 1} is {value!r}", (column.name,), row, value)
                        for value in values]
    for number, (name, changed, row, value) in enumerate(changes):
        other = table
        for column_name in changed:
            cells = table[column_name].to_pylist()
            cells[row] = value
            place = table.schema.get_field_index(column_name)
            other = other.set_column(place, table.schema.field(place), pa.array(cells, table.schema.field(place).type))
        path = _at(folder, number, file)
        pq.write_table(other, path)
        yield Neighbour(name, path, 1 if len(changed) > 1 else 2)

