"""A file of JSON that is read record by record: a list of records, or a record in each line.

What is no record is a row of empty cells, and what is no single value an empty cell, so that no record decides how
another one is read, or whether. A list is one document, and refused if it is no JSON as a whole. The columns are all
names that occur, which are public as those of every format are.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

_BROKEN = re.compile("[\ufffd\ud800-\udfff]")
"""What stands for bytes that are no text, or is half of a sign."""

_DIGITS = 4000
"""Most digits of a whole number that are kept: Python reads no more."""


def read_json_table(path: Path) -> pd.DataFrame:
    """Return the records of a file, each cell as it is, `[records, names]`.

    Args:
        path: File in UTF-8.

    Raises:
        OSError: If it cannot be read.
        ValueError: If its list is no JSON.
    """
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] == b"[" and content.rstrip()[-1:] == b"]":
        try:
            records = _parsed(content)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
    else:
        records = map(_of_line, content.removesuffix(b"\n").split(b"\n") if content.strip() else ())
    return pd.DataFrame([*map(_single_values, records)], dtype=object)


def _parsed(text: bytes) -> Any:
    """Return the value of a text in JSON."""
    return json.loads(text.decode("utf-8", "replace"), parse_int=_whole)


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
    return isinstance(value, str) and _BROKEN.search(value) is not None
