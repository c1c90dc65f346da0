"""A file that is read row by row, of text or of JSON: no record decides how another one is read, or whether.

In a file of text a record is a line. Its values follow from the line and from the first line of the file, which has the
names of the columns and is public. A line that cannot be read is a row of empty cells: a value may not go over several
lines, since a quote that one record opens must not swallow the next. So is a line that repeats the names, as files have
that were put together.

A file of JSON is a list of records, or has a record in each line. What is no record is a row of empty cells, and what
is no single value an empty cell. A list is one document, and refused if it is no JSON as a whole. The columns are all
names that occur, which are public as those of every format are.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.files.csv_file import Layout, named, refuse_repeated, refuse_values, repeats
from fedfair.datasets.files.plain_rows import said_separator
from fedfair.datasets.files.text_file import Lines, text_by_line

_BROKEN = re.compile("[\\0\\r\\n\\ufffd\\udc80-\\udcff]")
"""What stands for bytes that are no text, or ends a line elsewhere."""

JSON = (".json", ".jsonl", ".ndjson")
"""How names of files of JSON end."""

_BROKEN_IN_JSON = re.compile("[\ufffd\ud800-\udfff]")
"""What stands for bytes that are no text, or is half of a sign."""

_DIGITS = 4000
"""Most digits of a whole number that are kept: Python reads no more."""


class RowFile(NamedTuple):
    """A table of text whose first line has been read.

    Args:
        text: Its lines.
        layout: How each of its lines becomes values.
        names: Names of the columns.
    """

    text: Lines
    layout: Layout
    names: list[str]

    def frames(self, rows: int) -> Iterator[pd.DataFrame]:
        """Yield the values of all lines below the names, as text, some rows at a time; a blank line is an empty row.

        Args:
            rows: Number of rows.
        """
        lines = self.text.lines(self.layout.skip + 1)
        while portion := [*islice(lines, rows)]:
            yield frame_of(portion, self.layout, self.names)


def open_rows(path: Path, asked: Asked = Asked()) -> RowFile:  # noqa: B008
    """Return how a table of text is read row by row, from its first line and from what the user says.

    Args:
        path: File.
        asked: What the user says of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the first line has no names, repeats one, or may be separated in two ways.
    """
    text = text_by_line(path, asked.encoding)
    said = said_separator(next(text.lines(), ""))
    skip = 1 if said else 0
    names = next(text.lines(skip), "")
    if not names.strip():
        raise ValueError(f"{path} is no table: its first line must hold the names of the columns")
    layout = _layout(names, str(path), asked.separator or said, skip)
    values = fields(names, layout)
    if values is None:
        raise ValueError(f"the first line of {path} opens a quote that it does not close: write the names of the "
                         "columns into one line")
    spelt = [spelled(name) for name in values]
    refuse_repeated(spelt, path)
    refuse_values(spelt, path)
    if next(filter(str.strip, text.lines(skip + 1)), None) is None:
        raise ValueError(f"{path} has names of columns, but no records below them")
    return RowFile(text, layout, named(spelt))


def unreadable(file: RowFile) -> Iterator[int]:
    """Yield the numbers of the lines, from 1, that cannot be read by themselves. They tell of records.

    Args:
        file: The file.
    """
    first = file.layout.skip + 1
    for number, line in enumerate(file.text.lines(first), first + 1):
        if line.strip() and _record(line, file.layout, file.names) is None:
            yield number


def _layout(names: str, file: str, separator: str | None, skip: int) -> Layout:
    """Return how a line becomes values, as the names of the columns are written.

    Raises `ValueError` if several separators stand between them as often.
    """
    quote = "'" if names.strip().startswith("'") and '"' not in names else '"'
    if separator:
        return Layout(separator, quote, None, skip)
    bare = re.sub(f"{quote}[^{quote}]*{quote}", "", names)
    counts = {mark: bare.count(mark) for mark in ",;\t|"}
    most = max(counts.values())
    if not most:
        return Layout(" " if " " in bare.strip() else ",", quote, None, skip)
    widest = [mark for mark, count in counts.items() if count]
    if len(widest) > 1:
        raise ValueError(f"the names in the first line of {file} may be separated by "
                         f"{' as well as '.join(map(repr, widest))}: say by which with the setting separator, for "
                         f"example separator = {widest[0]!r}")
    return Layout(widest[0], quote, None, skip)


def frame_of(lines: Sequence[str], layout: Layout, names: Sequence[str]) -> pd.DataFrame:
    """Return the values of each line, `[n, names]`, empty ones for a line that cannot be read.

    Args:
        lines: Lines without their ends.
        layout: How a line becomes values.
        names: Names of the columns.
    """
    width, mark = len(names), layout.separator if layout.separator != " " else "\x1f"
    empty, first = [""] * width, names[0].lower()
    others = {place: _record(line, layout, names) or empty for place, line in enumerate(lines)
              if not _is_plain(line, layout, width) or line.lstrip()[:len(names[0])].lower() == first}
    bare = [mark * (width - 1) if place in others else line for place, line in enumerate(lines)]
    frame = pd.read_csv(StringIO("\n".join(bare)), sep=mark, names=list(names), header=None, index_col=False,
                        dtype="str", quoting=csv.QUOTE_NONE, na_filter=False, skipinitialspace=True,
                        skip_blank_lines=False)
    if others:
        frame.iloc[[*others]] = [*others.values()]
    return frame


def _is_plain(line: str, layout: Layout, width: int) -> bool:
    """Return whether a line is as many values, and nothing that quotes or is no text: then pandas splits it."""
    return (layout.separator != " " and line.count(layout.separator) == width - 1 and layout.quote not in line
            and "\\" not in line and not _BROKEN.search(line))


def _record(line: str, layout: Layout, names: Sequence[str]) -> list[str] | None:
    """Return the values of a line as `_row` does; None as well for one that repeats the names of the columns."""
    values = _row(line, layout, len(names))
    return None if values is None or repeats(values, names) else values


def _row(line: str, layout: Layout, width: int) -> list[str] | None:
    """Return the values of a line, with empty ones for those that it lacks at its end; None if it cannot be read.

    A quote within quotes is doubled; where the line does not fit so, it may have a backslash before it.
    """
    if _BROKEN.search(line):
        return None
    for escape in (None, "\\"):
        values = fields(line, layout._replace(escape=escape))
        if values is not None and not any(values[width:]):
            return values[:width] + [""] * (width - len(values))
        if "\\" not in line:
            break
    return None


def fields(line: str, layout: Layout) -> list[str] | None:
    """Return the values of one line; None if a quote is not closed, or more follows where it is.

    Args:
        line: Line without its end.
        layout: How it becomes values.

    Examples:
        >>> fields('24",7,"a, b"', Layout(","))
        ['24"', '7', 'a, b']
        >>> fields('"24,7,f,no', Layout(",")) is None
        True
    """
    if layout.separator == " ":
        line = " ".join(line.split())
    if layout.quote not in line and layout.escape is None:
        return [value.lstrip(" ") for value in line.split(layout.separator)]
    try:
        (values,) = csv.reader([line], delimiter=layout.separator, quotechar=layout.quote, escapechar=layout.escape,
                               doublequote=layout.escape is None, skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        return None
    return values


def read_json_table(path: Path) -> pd.DataFrame:
    """Return the records of a file, each cell as it is, `[records, names]`.

    Args:
        path: File in UTF-8.

    Raises:
        OSError: If it cannot be read.
        ValueError: If its list is no JSON.
    """
    return pd.DataFrame([*map(_single_values, _records(path))], dtype=object)


def refuse_nested(path: Path, needed: Collection[str]) -> None:
    """Raise `ValueError` for new rows of which a cell that a model needs is a list, a record of its own, or two values.

    In the table that trained the model it was an empty cell; a new row would be decided by that in silence.

    Args:
        path: File; one that is no JSON has no such cells.
        needed: Names of the columns that the model needs.
    """
    if path.suffix.lower() not in JSON:
        return
    for number, record in enumerate(_records(path), 1):
        for name, value in record.items() if isinstance(record, dict) else ():
            if isinstance(value, list | dict) and name in needed:
                kinds = {_Values: "two values", list: "a list", dict: "a record"}
                raise ValueError(f"column {name!r} has {kinds[type(value)]} in row {number} of {path}, where the model "
                                 "needs one value: write that, or null")


def _records(path: Path) -> Iterable[Any]:
    """Return what a file's list holds, or its lines."""
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] == b"[" and content.rstrip()[-1:] == b"]":
        try:
            found: Iterable[Any] = _parsed(content)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        return found
    return map(_of_line, content.removesuffix(b"\n").split(b"\n") if content.strip() else ())


def _parsed(text: bytes) -> Any:
    """Return the value of a text in JSON."""
    return json.loads(text.decode("utf-8", "replace"), parse_int=_whole, object_pairs_hook=_by_name)


class _Values(list[Any]):
    """Values of a name that a record has more than once: no single value, no more than a list is."""


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a record by its names in one spelling, with all values of a name that is there more than once."""
    made: dict[str, Any] = {}
    for name, value in ((spelled(name), value) for name, value in pairs):
        made[name] = _Values([made[name], value]) if name in made else value
    return made


def _whole(digits: str) -> float:
    """Return a whole number; an infinite one for more digits than Python reads."""
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _of_line(line: bytes) -> Any:
    """Return the value of a line, None if it is no JSON."""
    try:
        return _parsed(line)
    except (ValueError, RecursionError):
        return None


def _single_values(record: Any) -> Mapping[str, Any]:
    """Return the cells of a record, None for those with lists or more records; no cells for what is no record."""
    if not isinstance(record, dict) or any(map(_is_broken, [*record, *record.values()])):
        return {}
    return {name: None if isinstance(value, list | dict) else value for name, value in record.items()}


def _is_broken(value: Any) -> bool:
    """Return whether a value is a text with signs that are none."""
    return isinstance(value, str) and _BROKEN_IN_JSON.search(value) is not None
