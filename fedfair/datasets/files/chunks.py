"""A table that is read some rows at a time, so that a file may be larger than memory.

No record decides how another one is read: text is read line by line (`fedfair.datasets.files.row_file`), and a file
that knows the types of its columns gives each column its type, whichever values are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.convention import Asked, Quantity
from fedfair.datasets.columns.tidy import declared_quantity, listed, with_columns
from fedfair.datasets.files.csv_file import places_of_names, without_names
from fedfair.datasets.files.estimate import CHUNKS, WHOLE, announce
from fedfair.datasets.files.part_files import folder_values, part_files
from fedfair.datasets.files.row_file import open_rows
from fedfair.datasets.files.survey_file import SUFFIXES
from fedfair.datasets.files.table_file import (
    TableFile,
    codes_of_parquet,
    is_plain,
    is_text,
    of_arrow,
    plain_names,
    plain_values,
    read_table,
)
from fedfair.datasets.files.workbook import refuse_header_row

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_log = logging.getLogger(__name__)


class ParquetFile(NamedTuple):
    """A Parquet file whose columns are known.

    Args:
        path: File.
        names: Names of the columns.
        declared: Those that hold dates, moments or durations, each with its quantity.
        records: Number of rows.
    """

    path: Path
    names: list[str]
    declared: tuple[tuple[str, Quantity], ...]
    records: int

    def frames(self, rows: int) -> Iterator[pd.DataFrame]:
        """Yield the rows, some at a time.

        Args:
            rows: Most rows of a chunk.
        """
        for frame in _frames(self.path, rows):
            yield _emptied(pd.DataFrame({name: plain_values(column) for name, column in frame.items()}))


def open_parquet(path: Path) -> ParquetFile | None:
    """Return how a Parquet file is read in chunks; None, with a warning, if it has to be read whole.

    Args:
        path: File.

    Raises:
        ValueError: If it cannot be read, has no records, or names a column twice.
    """
    from pyarrow.types import is_date, is_duration, is_timestamp

    with _opened(path) as file:
        schema, records = file.schema_arrow, file.metadata.num_rows
    for field in schema:
        if not is_plain(field.type):
            _log.warning("%s is read whole, since its column %r holds values of the type %s", path, field.name,
                         field.type)
            return None
    if not records:
        raise ValueError(f"{path} has no records")
    names = [*map(str, next(_frames(path, 1)))]
    dates = {spelled(field.name) for field in schema if is_date(field.type) or is_timestamp(field.type)}
    spans = {spelled(field.name) for field in schema if is_duration(field.type)}
    kinds: dict[str, Quantity] = {**dict.fromkeys(dates, "date"), **dict.fromkeys(spans, "duration")}
    return ParquetFile(path, names, tuple((name, kinds[name]) for name in names if name in kinds), records)


def _frames(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file as pandas takes them."""
    import pyarrow as pa

    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield plain_names(of_arrow(pa.Table.from_batches([batch])), path)


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


CELLS = 2**20
"""Cells of a chunk, about."""

_AS_ASKED = Asked()


class Chunks(NamedTuple):
    """A table in chunks, which are read again as often as they are wanted.

    Args:
        names: Names of its columns.
        frames: Yields the rows, some at a time; text is not interpreted yet.
        separator: What separated values; None for a file that knows its values' types.
        listed: Columns of which the file says that their values are categories (`columns.tidy.listed`).
        declared: Columns of which the file says that they hold dates, moments or durations, each with its quantity.
        stated: Number of rows, where the files state it; None if only reading tells.
    """

    names: list[str]
    frames: Callable[[], Iterator[pd.DataFrame]]
    separator: str | None = None
    listed: tuple[str, ...] = ()
    declared: tuple[tuple[str, Quantity], ...] = ()
    stated: int | None = None


_State = tuple[tuple[tuple[Path, int, int], ...], str | None, str | None, str | None, int | None, tuple[str, ...]]

_held: dict[_State, Chunks] = {}


def hold_chunks(path: Path, asked: Asked = _AS_ASKED) -> Chunks:
    """Return the table of a file as `chunks_of` does, and hold it for the next who reads the same file in the same way.

    Args:
        path: File.
        asked: What the user says of the file.
    """
    chunks = chunks_of(path, asked)
    release_chunks()
    _held[_state(path, asked)] = chunks
    return chunks


def release_chunks() -> None:
    """Hold no table any more."""
    _held.clear()


def names_of(path: Path, asked: Asked = _AS_ASKED) -> list[str]:
    """Return the names of a file's columns; raise what `chunks_of` raises.

    Args:
        path: File.
        asked: What the user says of the file.
    """
    held = _held.get(_state(path, asked)) if _held else None
    return (held or chunks_of(path, asked)).names


def _state(path: Path, asked: Asked) -> _State:
    """Return what tells files, in their present state, and a way to read them from others."""
    files = part_files(path)
    states = [(file, file.stat()) for file in files]
    numeric = asked.numeric if any(file.suffix.lower() in SUFFIXES for file in files) else ()  # others do without
    return (tuple((file, state.st_mtime_ns, state.st_size) for file, state in states), asked.separator, asked.encoding,
            asked.sheet, asked.header_row, numeric)


def chunks_of(path: Path, asked: Asked = _AS_ASKED, cells: int = CELLS) -> Chunks:
    """Return a table: text and Parquet in chunks, and a file of every other format as one chunk.

    Args:
        path: Its file; or a folder or a pattern, whose files are put together in the order of their names.
        asked: What the user says of the files.
        cells: Cells of a chunk, about.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file cannot be read, or has other columns than the first; the message says how to mend it.
    """
    held = _held.pop(_state(path, asked), None) if _held else None
    if held is not None:
        return held
    files = part_files(path)
    if path.is_dir() and not files:
        raise FileNotFoundError(f"the folder {path} has no file: name a file, or a folder with the files of a table")
    if not files and has_magic(str(path)):
        raise FileNotFoundError(f"no file is like {path}: name a file, a folder, or a pattern such as parts/*.csv")
    announce(path, files or [path], CHUNKS)
    parts = [_of_file(file, asked, cells) for file in files or [path]]
    parts = [_with_values(part, folder_values(file, path)) for file, part in zip(files or [path], parts, strict=True)]
    if len(parts) > 1:
        _refuse_others(files, parts)
    return Chunks(parts[0].names, partial(_one_after_another, parts), parts[0].separator, parts[0].listed,
                  tuple(dict.fromkeys(chain.from_iterable(part.declared for part in parts))), _stated(parts))


def read_files(path: Path, asked: Asked = _AS_ASKED) -> TableFile:
    """Read a table as `fedfair.datasets.files.table_file.read_table` does, from a file, or from all of a folder or a
    pattern, put together in the order of their names.

    Args:
        path: File, folder or pattern.
        asked: What the user says of the files.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file cannot be read, or has other columns than the first.
    """
    files = part_files(path)
    announce(path, files or [path], WHOLE)
    if path.is_file() or not files:
        table = read_table(path, asked)
        return table._replace(frame=without_names(table.frame, path))
    tables = [read_table(file, asked) for file in files]
    tables = [table._replace(frame=without_names(table.frame, file)) for file, table in zip(files, tables, strict=True)]
    chunks = [_with_values(one_chunk(table.frame, table.separator), folder_values(file, path))
              for file, table in zip(files, tables, strict=True)]
    _refuse_others(files, chunks)
    frame = pd.concat(_one_after_another(chunks), ignore_index=True)
    codes = [name for name in chunks[0].listed if all(name in part.listed for part in chunks)]
    frame = frame.astype(dict.fromkeys(codes, "category"))  # each file has its own list
    described = tables[0].described if len(files) == 1 else f"{len(files)} files, the first as {tables[0].described}"
    return TableFile(frame, tables[0].separator, described)


def read_rows(path: Path, asked: Asked = _AS_ASKED) -> TableFile:
    """Read a table from a file as `fedfair.datasets.files.table_file.read_table` does, but text row by row.

    A line that cannot be read is left out; so is one whose cells are all empty.

    Args:
        path: File.
        asked: What the user says of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read.
    """
    if not is_text(path):
        announce(path, [path], WHOLE)
        return read_table(path, asked)
    chunks = chunks_of(path, asked)
    frame = pd.concat(chunks.frames(), ignore_index=True)
    full = (frame != "").any(axis=1)
    return TableFile(frame[full], chunks.separator, "text, row by row", int((~full).sum()))


def _of_file(path: Path, asked: Asked, cells: int) -> Chunks:
    """Return the table of one file."""
    refuse_header_row(path, asked)
    if is_text(path):
        file = open_rows(path, asked)
        return Chunks(file.names, partial(file.frames, _rows(cells, file.names)), file.layout.separator)
    parquet = open_parquet(path) if path.suffix.lower() in (".parquet", ".pq") and path.is_file() else None
    if parquet is not None:
        return Chunks(parquet.names, partial(parquet.frames, _rows(cells, parquet.names)),
                      listed=tuple(name for name in map(spelled, codes_of_parquet(path)) if name in parquet.names),
                      declared=parquet.declared, stated=parquet.records)
    return one_chunk(_emptied(read_table(path, asked).frame))


def _emptied(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose rows are empty that repeat the names of its columns, as such lines of text are."""
    again = places_of_names(frame)
    if again:
        frame = frame.copy()
        frame.iloc[again] = None
    return frame


def _with_values(part: Chunks, values: Mapping[str, str]) -> Chunks:
    """Return a file's table with the values of its folders as columns of text; a column of the file's own stays."""
    more = {name: value for name, value in values.items() if name not in part.names}
    if not more:
        return part

    def frames() -> Iterator[pd.DataFrame]:
        """Yield the rows with these columns."""
        for frame in part.frames():
            values = {name: pd.Series(value, frame.index, dtype="str") for name, value in more.items()}
            yield with_columns(frame, values)

    return part._replace(names=[*part.names, *more], frames=frames)


def _stated(parts: list[Chunks]) -> int | None:
    """Return how many rows parts have together, if each states it."""
    stated = [part.stated for part in parts if part.stated is not None]
    return sum(stated) if len(stated) == len(parts) else None


def _refuse_others(files: list[Path], parts: list[Chunks]) -> None:
    """Raise `ValueError` for a file with other columns, or another separator, than the first."""
    for file, part in zip(files, parts, strict=True):
        more = [name for name in part.names if name not in parts[0].names]
        fewer = [name for name in parts[0].names if name not in part.names]
        said = [*([f"has the columns {', '.join(more)}, which {files[0]} does not"] if more else []),
                *([f"lacks the columns {', '.join(fewer)} of {files[0]}"] if fewer else [])]
        if said:
            raise ValueError(f"{file} {' and '.join(said)}: files of one table must have the same columns")
        if part.separator != parts[0].separator:
            apart = [repr(each.separator) if each.separator else "the file's format" for each in (part, parts[0])]
            raise ValueError(f"values are separated by {apart[0]} in {file}, but by {apart[1]} in {files[0]}: write "
                             "the files in one way, or give the setting separator if one of them was mistaken")


def _one_after_another(parts: list[Chunks]) -> Iterator[pd.DataFrame]:
    """Yield the chunks of all files, with columns in the order of the first."""
    for part in parts:
        for frame in part.frames():
            yield frame[parts[0].names]


def one_chunk(frame: pd.DataFrame, separator: str | None = None) -> Chunks:
    """Return a table in memory as a single chunk.

    Args:
        frame: The table.
        separator: What separated values in its file.
    """
    return Chunks([*map(str, frame)], lambda: iter([frame]), separator, listed(frame),
                  tuple((str(name), kind) for name, column in frame.items() if (kind := declared_quantity(column))),
                  len(frame))


def _rows(cells: int, names: list[str]) -> int:
    """Return the number of rows that have about as many cells."""
    return max(1, cells // len(names))
