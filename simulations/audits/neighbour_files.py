"""Neighbours of a file with a table: files that differ from it in one row, in every way that its format allows."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedfair.datasets.files.row_file import open_rows
from fedfair.datasets.files.table_file import is_text
from fedfair.datasets.files.workbook import SUFFIXES

CELLS = ("", '"', "'", "\\", '24"', "0,5", "1.234", "1e308", "-1e308", "inf", "007", "x", "TRUE", "2020-01-01", "$5",
         "5%")
"""What is written into a cell of a file of text."""

LINES = {"a blank line": b"", "an open quote": b'"24', "a lone quote": b'24"', "too many values": b",;|\t" * 20,
         "bytes that are no text": b"\xff\xfe\xff", "a zero": b"a\0b", "a line that names a separator": b"sep=;"}
"""What is written in place of a whole line."""

VALUES = ("0,5", '24"', "x", 0.5, -1e308, 2**60 + 1, True)
"""What is written into a cell of JSON or of a workbook."""

RECORDS = {"empty": b"{}", "a number": b"5", "a list": b"[1]"}
"""What is written in place of a record of JSON."""

BROKEN_RECORDS = {"a blank line": b"", "an open quote": b'{"24', "an open bracket": b"[",
                  "bytes that are no text": b'{"a": "\xff"}'}
"""The same, in a file with a record in each line."""

_ROWS = 2  # of the table, which are changed
_KEPT = "surrogateescape"  # bytes that are no text


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

    Names of columns, groups and classes are public, so a label is emptied, or becomes another one of the table, which
    turns the record's gradient round; a group is only emptied, with its row.

    Args:
        file: Text, Parquet, JSON or a workbook.
        folder: Where they are written, each under the name of the file.
        label: Column of the label.
        group: Column of the group.
        seed: Decides which rows are changed.

    Raises:
        ValueError: For a file of another format.
    """
    made = _of_text if is_text(file) else _MADE.get(file.suffix.lower())
    if made is None:
        raise ValueError(f"{file} is neither text nor Parquet, JSON or a workbook, of which neighbours can be made: "
                         "save it as one of these")
    yield from made(file, folder, {label, group}, label, seed)


def _at(folder: Path, number: int, file: Path) -> Path:
    """Return the path of a neighbour, whose name is the table's."""
    (folder / str(number)).mkdir()
    return folder / str(number) / file.name


def _of_text(file: Path, folder: Path, roles: set[str], label: str, seed: int) -> Iterator[Neighbour]:
    """Yield neighbours of a file of text, which have other bytes in one line."""
    opened = open_rows(file)
    lines, first = file.read_bytes().splitlines(), opened.layout.skip + 1
    mark = opened.layout.separator.encode()
    labels = [cells[opened.names.index(label)].decode(errors=_KEPT) for line in lines[first:]
              if label in opened.names and len(cells := line.split(mark)) == len(opened.names)]
    changes: list[tuple[str, int, bytes]] = []
    for row in (first + place for place in _some(len(lines) - first, seed)):
        changes += [(f"line {row + 1} is {name}", row, line) for name, line in LINES.items()]
        cells = lines[row].split(mark)
        if len(cells) == len(opened.names):
            for place, name in enumerate(opened.names):
                changes += [(f"{name} in line {row + 1} is {cell!r}", row, mark.join(
                    [*cells[:place], cell.encode(errors=_KEPT), *cells[place + 1:]]))
                            for cell in _of_role(name, roles, label, CELLS, cells[place].decode(errors=_KEPT), labels)]
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
    labels = table.column(label).to_pylist() if label in table.column_names else []
    for row in _some(table.num_rows, seed):
        changes.append((f"row {row + 1} is empty", table.column_names, row, None))
        for column in table.schema:
            own = table.column(column.name)[row].as_py()
            written = _of_role(column.name, roles, label, [None, *_extremes(column.type)], own, labels)
            changes += [(f"{column.name} in row {row + 1} is {value!r}", (column.name,), row, value)
                        for value in written]
    for number, (name, changed, row, value) in enumerate(changes):
        one = table.slice(row, 1)
        for column_name in changed:
            place = one.schema.get_field_index(column_name)
            field = one.schema.field(place)
            one = one.set_column(place, field, pa.array([value], field.type))
        path = _at(folder, number, file)
        pq.write_table(pa.concat_tables([table.slice(0, row), one, table.slice(row + 1)]), path)
        yield Neighbour(name, path, 1 if len(changed) > 1 else 2)


def _extremes(kind: Any) -> list[Any]:
    """Return unusual values that a type of Arrow has."""
    import pyarrow as pa

    values: list[Any] = ["", "0,5", '24"'] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else []
    if pa.types.is_integer(kind):
        bits = kind.bit_width - pa.types.is_signed_integer(kind)
        values = [2**bits - 1, -2**bits if pa.types.is_signed_integer(kind) else 0]
    elif pa.types.is_floating(kind):
        values = [0.5, 1e308, -1e308, math.inf, math.nan]
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values = [datetime.datetime(1, 1, 1), datetime.datetime(1970, 1, 1, 3, 4), datetime.datetime(9999, 12, 31)]
    elif pa.types.is_boolean(kind):
        values = [True, False]
    return [value for value in values if _fits(value, kind)]


def _fits(value: object, kind: Any) -> bool:
    """Return whether a type of Arrow has a value."""
    import pyarrow as pa

    try:
        pa.array([value], kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def _of_json(file: Path, folder: Path, roles: set[str], label: str, seed: int) -> Iterator[Neighbour]:
    """Yield neighbours of a file of JSON, with another record among its list or its lines."""
    content = file.read_bytes()
    is_list = content.lstrip().startswith(b"[")
    parsed = json.loads(content) if is_list else [json.loads(line) for line in content.splitlines()]
    records = [json.dumps(record).encode() for record in parsed]
    changes: list[tuple[str, int, bytes]] = [("the table", 0, records[0])]
    labels = [record[label] for record in parsed if label in record]
    for row in _some(len(records), seed):
        lines = {**RECORDS, **({} if is_list else BROKEN_RECORDS)}
        changes += [(f"record {row + 1} is {name}", row, record) for name, record in lines.items()]
        for key in parsed[row]:
            cells = {repr(value): {**parsed[row], key: value} for value in _of_role(
                key, roles, label, [None, *VALUES, [1]], parsed[row][key], labels)}
            changes += [(f"{key} in record {row + 1} is {cell}", row, json.dumps(record).encode())
                        for cell, record in cells.items()]
    for number, (name, row, record) in enumerate(changes):
        path, others = _at(folder, number, file), [*records[:row], record, *records[row + 1:]]
        path.write_bytes(b"[" + b",\n".join(others) + b"]" if is_list else b"\n".join(others) + b"\n")
        yield Neighbour(name, path, 1 if record in (b"", b"{}") else 2)


def _of_workbook(file: Path, folder: Path, roles: set[str], label: str, seed: int) -> Iterator[Neighbour]:
    """Yield neighbours of a workbook with one sheet, below whose first row one row is another one."""
    import openpyxl

    sheet = openpyxl.load_workbook(file).active
    names, rows = [cell.value for cell in sheet[1]], sheet.max_row - 1
    labels = [sheet.cell(row, names.index(label) + 1).value for row in range(2, rows + 2) if label in names]
    changes: list[tuple[str, int, dict[int, object]]] = [("the table", 2, {})]
    for row in (place + 2 for place in _some(rows, seed)):
        changes.append((f"row {row} is empty", row, dict.fromkeys(range(1, len(names) + 1))))
        changes.append((f"row {row} has a cell beside the table", row, {len(names) + 2: "x"}))
        for place, name in enumerate(names, 1):
            changes += [(f"{name} in row {row} is {value!r}", row, {place: value}) for value in _of_role(
                str(name), roles, label, [None, *VALUES, datetime.datetime(2020, 1, 1), datetime.time(3, 4)],
                sheet.cell(row, place).value, labels)]
    for number, (name, row, cells) in enumerate(changes):
        book, path = openpyxl.load_workbook(file), _at(folder, number, file)
        for place, value in cells.items():
            book.active.cell(row, place).value = value
        book.save(path)
        yield Neighbour(name, path, 1 if len(cells) > 1 else 2)


def _some(rows: int, seed: int) -> list[int]:
    """Return the places of the rows that are changed, of so many."""
    return np.random.default_rng(seed).choice(rows, min(_ROWS, rows), replace=False).tolist()  # type: ignore[no-any-return]


def _of_role(name: str, roles: set[str], label: str, values: Sequence[Any], own: Any, labels: Sequence[Any]
             ) -> Sequence[Any]:
    """Return the values of a cell that are tried: of a label none and another one, of a group nothing else."""
    if name == label:
        return [*values[:1], *[each for each in labels if each not in (own, None, "")][:1]]
    return () if name in roles else values


_MADE = {".parquet": _of_parquet, ".pq": _of_parquet, **dict.fromkeys((".json", ".jsonl", ".ndjson"), _of_json),
         **dict.fromkeys(SUFFIXES, _of_workbook)}
