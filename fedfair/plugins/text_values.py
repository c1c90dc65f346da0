"""Values that people, programs or servers wrote as TOML or JSON: read, or refused as a text that cannot be read.

The readers of Python go down into a value by calling themselves, so that one that is nested thousands deep ends in a
RecursionError, which no caller takes for a mistake in the text.
"""

from __future__ import annotations

import json
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

_TOO_DEEP = "it is nested too deep"
_DEEPEST = 32
"""Levels of lists and tables in a text of settings: more would end what prints or copies them later."""


def from_json(text: str | bytes) -> Any:
    """Return the value that a text is in JSON.

    Args:
        text: The text.

    Raises:
        ValueError: If it is no JSON, or nested too deep.

    Examples:
        >>> from_json('{"epsilon": 1}')
        {'epsilon': 1}
        >>> from_json("[" * 100_000)
        Traceback (most recent call last):
        ValueError: it is nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def from_toml(text: str) -> dict[str, Any]:
    """Return the values of a text in TOML.

    Args:
        text: The text.

    Raises:
        tomllib.TOMLDecodeError: If it is no TOML, or nested too deep.
    """
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_TOO_DEEP) from None
    if _levels(values) > _DEEPEST:
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    return values


def read_json(path: Path) -> dict[str, Any]:
    """Return the entries of a file in JSON.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is no JSON, or a value without names, with a sentence that names the file.
    """
    try:
        values = from_json(_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error if path.stat().st_size else 'it is empty'}): check that it was "
                         "copied whole") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): check that it was copied whole") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} has something else than names and their values: check that it was copied whole, from "
                         "where it was written")
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Return the entries of a file in TOML.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is no TOML, with a sentence that names the file.
    """
    try:
        return from_toml(_text(path))
    except ValueError as error:
        raise ValueError(f"{path} is not TOML ({error}): correct it, or check that it was copied whole") from None


def _levels(values: Any) -> int:
    """Return how many lists and tables are within each other, counted a level at a time, up to one too many."""
    level = [values]
    for depth in range(_DEEPEST + 1):
        level = [*chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level
                                      if isinstance(each, dict | list))]
        if not level:
            return depth
    return _DEEPEST + 1


def _text(path: Path) -> str:
    """Return a file's text, without a byte order mark; raise `ValueError` if it is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8, in which it must be saved") from None
