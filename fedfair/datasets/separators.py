"""What separates the values of a file, and what quotes them: the convention in which all its lines fit together."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar", " ": "blanks"}
_LINES = 200  # of the file are looked at


class Layout(NamedTuple):
    """How lines become values.

    Args:
        separator: What stands between two values; " " for any number of blanks.
        quote: What stands around a value that holds a separator.
        escape: What stands before a quote within quotes, if it is not doubled.
        skip: Number of first lines that belong to the file's format, as "sep=;" does.
    """

    separator: str
    quote: str = '"'
    escape: str | None = None
    skip: int = 0

    def __str__(self) -> str:
        """Describe the layout for people."""
        return f"values separated by {_NAMES.get(self.separator, repr(self.separator))}"


def layout_of(text: str, name: str, separator: str | None = None) -> Layout:
    """Return how the lines of a text become values.

    Args:
        text: Text of the file.
        name: Name of the file, for errors.
        separator: What separates values; by default that in which all lines have the same number of values.

    Raises:
        ValueError: If two separators fit equally well; the message names the setting.
    """
    said = re.match(r'"?sep=(.)"?\n', text, re.IGNORECASE)
    skip = 1 if said else 0
    sample = text.split("\n", 1)[1] if said else text
    escape = "\\" if '\\"' in sample and '""' not in sample else None
    wanted = separator or (said[1] if said else None)
    if wanted:
        return Layout(wanted, _quote(sample, wanted), escape, skip)
    widths = {mark: width for mark in ",;\t|" if (width := _width(sample, mark, _quote(sample, mark), escape)) > 1}
    if not widths:
        blanks = _width(_blanks_as_one(sample), " ", '"', escape)
        mark = " " if blanks > 1 else _most_frequent(sample)
        return Layout(mark, _quote(sample, mark), escape, skip)
    widest = [mark for mark, width in widths.items() if width == max(widths.values())]
    if len(widest) > 1:
        kinds = " as well as ".join(_NAMES[mark] for mark in widest)
        raise ValueError(f"{name} may be separated by {kinds}: say which with the setting separator, for example "
                         f"separator = {widest[0]!r}")
    return Layout(widest[0], _quote(sample, widest[0]), escape, skip)


def _width(sample: str, separator: str, quote: str, escape: str | None) -> int:
    """Return the number of values in each of the first lines, 0 if they differ or quotes are not closed."""
    try:
        widths = {len(row) for row in islice(_rows(sample, separator, quote, escape), _LINES) if row}
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _rows(sample: str, separator: str, quote: str, escape: str | None) -> Iterator[list[str]]:
    """Return the rows of a text."""
    return csv.reader(io.StringIO(sample, newline=""), delimiter=separator, quotechar=quote, escapechar=escape,
                      doublequote=escape is None, skipinitialspace=True, strict=True)


def _quote(sample: str, separator: str) -> str:
    """Return the mark around values: a double quote, or a single one around all values of a line or a column."""
    if '"' in sample or "'" not in sample:
        return '"'
    cut = re.escape(separator)
    lines = [line for line in sample.split("\n", _LINES)[:_LINES] if line.strip()]
    quoted = [line for line in lines if re.search(rf"(^|{cut})\s*'[^']*'\s*({cut}|$)", line)]
    return "'" if len(quoted) >= max(1, len(lines) - 1) else '"'


def _blanks_as_one(sample: str) -> str:
    """Return a text in which one blank separates what several separated, without blanks around lines."""
    return "\n".join(re.sub(" +", " ", line.strip()) for line in sample.split("\n", _LINES)[:_LINES])


def _most_frequent(sample: str) -> str:
    """Return the separator that is most frequent in the first line, outside quotes."""
    first = re.sub('"[^"]*"', "", sample).split("\n", 1)[0]
    return max(",;\t|", key=first.count)
