"""What reading a table takes, estimated before it is read, so that nobody waits without knowing for what.

It follows from what everybody may know and nothing has to be read for: the sizes of files, what zip, Parquet and Arrow
state of their content, and how many names the first line of a text has. No record is looked at, and what is said stays
in the log of the machine that reads. Seconds and bytes are rough: they are measured on one machine, and the cells of
one table are longer than those of another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

import psutil

from fedfair.datasets.files import survey_file, workbook
from fedfair.datasets.files.row_file import JSON
from fedfair.datasets.files.text_file import first_line, text_size

_log = logging.getLogger(__name__)

LEAST = 20.0
"""Seconds of reading from which on it is said."""

_SEPARATORS = (b",", b";", b"\t", b"|")


class Extent(NamedTuple):
    """How large a table is, as far as its files tell without being read.

    Args:
        size: Bytes of its content, unpacked; about, where it is packed.
        columns: Number of columns; 0 if only reading tells.
        rows: Number of rows; 0 if only reading tells.
        words: What it is, in words.
    """

    size: int
    columns: int
    rows: int
    words: str


class Rate(NamedTuple):
    """What reading takes, in seconds of a processor and bytes of memory.

    Args:
        megabyte: Seconds for a megabyte of content.
        cells: Seconds for a million cells, where rows and columns are known.
        column: Seconds for a column, however few rows it has.
        of_size: Bytes of memory for each byte of content.
        of_cell: Bytes of memory for each cell.
    """

    megabyte: float = 0.0
    cells: float = 0.0
    column: float = 0.0
    of_size: float = 0.0
    of_cell: float = 0.0


WHOLE: Mapping[str, Rate] = {
    "text": Rate(megabyte=0.5, column=0.025, of_size=12), "parquet": Rate(cells=2.0, column=0.025, of_cell=50),
    "arrow": Rate(megabyte=0.5, of_size=8), "json": Rate(megabyte=0.4, of_size=12),
    "workbook": Rate(megabyte=0.6, of_size=6), "survey": Rate(megabyte=0.5, of_size=12)}
"""By kind of file what it takes to read a table whole, and to tell what its columns hold."""

CHUNKS: Mapping[str, Rate] = {**WHOLE, "text": Rate(megabyte=0.25, column=0.01, of_size=6),
                              "parquet": Rate(cells=0.4, column=0.01, of_cell=27)}
"""The same of a fit, which reads text and Parquet in chunks, twice, and keeps numbers and places among categories."""

# Measured on one core: `check`, `fit` and `run` of 200,000 rows of 22 columns (18 MB of text), and of 50 rows of 1,000
# and of 5,000 columns. Memory for each row of text and Parquet is that of the table in docs/tutorials/fit.md.


def announce(path: Path, files: Sequence[Path], rates: Mapping[str, Rate], least: float = LEAST,
             free: float | None = None) -> None:
    """Log what is about to be read, and about how long it takes, if that is long; warn if memory is too small for it.

    A file that is broken is left to its reader to refuse.

    Args:
        path: What the user named: a file, a folder or a pattern.
        files: Its files.
        rates: What reading takes, by kind of file: `WHOLE` or `CHUNKS`.
        least: Seconds from which on it is said.
        free: Bytes of memory that are free; by default those of this machine.
    """
    with suppress(OSError, EOFError, ValueError, BadZipFile):
        extent, rate = extent_of(files), rates[_kind(files[0])]
        available = psutil.virtual_memory().available if free is None else free
        seconds, memory = seconds_of(extent, rate), memory_of(extent, rate)
        said = f"{path} is read: {extent.words}; that takes {_time(seconds)}"
        if memory > available:
            _log.warning("%s and about %s of memory, of which %s are free: the system may end the program. Take fewer "
                         "rows or columns, or a machine with more memory", said, _size(memory), _size(available))
        elif seconds >= least:
            _log.info("%s", said)


def extent_of(files: Sequence[Path]) -> Extent:
    """Return how large the table of some files is.

    Args:
        files: The files, at least one; all are of the first one's kind.

    Raises:
        OSError: If one is absent.
        ValueError: If one is not of the kind that the end of its name says.
        zipfile.BadZipFile: If a workbook is none.
    """
    parts = [_EXTENTS[_kind(file)](file) for file in files]
    size, rows = sum(part.size for part in parts), sum(part.rows for part in parts)
    counted = f"{rows:,} rows" if rows else f"{_size(size)} of {_NAMES[_kind(files[0])]}"
    columns = f" {'of' if rows else 'in'} {parts[0].columns:,} columns" if parts[0].columns else ""
    among = f", {len(files):,} files" if len(files) > 1 else ""
    return Extent(size, parts[0].columns, rows, f"{counted}{columns}{among}")


def seconds_of(extent: Extent, rate: Rate) -> float:
    """Return about how many seconds of a processor it takes to read a table.

    Args:
        extent: How large it is.
        rate: What reading takes.

    Examples:
        >>> seconds_of(Extent(2_000_000, 10, 0, ""), Rate(megabyte=0.5, column=0.1))
        2.0
    """
    millions = rate.megabyte * extent.size + rate.cells * extent.rows * extent.columns
    return millions / 1e6 + rate.column * extent.columns


def memory_of(extent: Extent, rate: Rate) -> float:
    """Return about how many bytes of memory it takes.

    Args:
        extent: How large it is.
        rate: What reading takes.

    Examples:
        >>> memory_of(Extent(0, 4, 1_000, ""), Rate(of_cell=25))
        100000.0
    """
    return float(rate.of_size * extent.size + rate.of_cell * extent.rows * extent.columns)


def _text(file: Path) -> Extent:
    """Return how large a file of text is."""
    line = first_line(file)
    return Extent(text_size(file), 1 + max(map(line.count, _SEPARATORS)), 0, "")


def _parquet(file: Path) -> Extent:
    """Return what a file of Parquet states of itself."""
    import pyarrow.parquet as pq

    stated = pq.read_metadata(file)
    return Extent(file.stat().st_size, stated.num_columns, stated.num_rows, "")


def _workbook(file: Path) -> Extent:
    """Return how large the parts of a workbook are, as its directory states."""
    with ZipFile(file) as book:
        return Extent(sum(part.file_size for part in book.infolist()), 0, 0, "")


def _other(file: Path) -> Extent:
    """Return how large any other file is."""
    return Extent(file.stat().st_size, 0, 0, "")


_EXTENTS: Mapping[str, Callable[[Path], Extent]] = {
    "text": _text, "parquet": _parquet, "workbook": _workbook, "arrow": _other, "json": _other, "survey": _other}
_NAMES = {"text": "text", "parquet": "Parquet", "workbook": "a workbook, unpacked", "arrow": "Arrow", "json": "JSON",
          "survey": "a program for statistics"}
_SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"), **dict.fromkeys((".feather", ".arrow"), "arrow"),
    **dict.fromkeys(workbook.SUFFIXES, "workbook"), **dict.fromkeys(JSON, "json"),
    **dict.fromkeys(survey_file.SUFFIXES, "survey")}


def _kind(file: Path) -> str:
    """Return of which kind a file is, by the end of its name."""
    return _SUFFIXES.get(file.suffix.lower(), "text")


def _time(seconds: float) -> str:
    """Return a rough time in words."""
    if seconds < 100:
        return f"about {max(10, round(seconds, -1)):.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 6000 else f"about {seconds / 3600:.0f} hours"


def _size(count: float) -> str:
    """Return a rough number of bytes in words."""
    if count < 1e9:
        return f"{count / 1e6:,.0f} MB"
    return f"{count / 1e9:,.{1 if count < 1e10 else 0}f} GB"
