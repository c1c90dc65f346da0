"""All that a folder says, as single entries: every value of every file, and the size of every file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import safe_open

Entry = float | str
"""The value of an entry."""

Named = Iterator[tuple[str, Entry]]


def entries(folder: Path) -> dict[str, Entry]:
    """Return every value in a folder by where it stands: numbers as numbers, all else as text.

    Args:
        folder: Folder of a result.

    Returns:
        Entries by "file/place".
    """
    found: dict[str, Entry] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            found[f"{name}/size"] = float(path.stat().st_size)
            found.update({f"{name}/{place}": value for place, value in _READERS.get(path.suffix, _plain)(path)})
    return found


def _plain(path: Path) -> Named:
    """Yield the bytes of a file as one text."""
    yield "content", path.read_bytes().decode("latin-1")


def _leaves(value: Any, place: str = "") -> Named:
    """Yield the values of nested tables and lists."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, f"{place}/{name}" if place else str(name))
    elif isinstance(value, list):
        yield f"{place}/length", float(len(value))
        for number, part in enumerate(value):
            yield from _leaves(part, f"{place}/{number}")
    else:
        yield place, _entry(value)


def _entry(value: Any) -> Entry:
    """Return one value: a number as it is, all else as text."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _json(path: Path) -> Named:
    """Yield the values of JSON."""
    return _leaves(json.loads(path.read_text(encoding="utf-8")))


def _toml(path: Path) -> Named:
    """Yield the values of TOML."""
    return _leaves(tomllib.loads(path.read_text(encoding="utf-8")))


def _csv(path: Path) -> Named:
    """Yield the cells of a table in text."""
    return _cells(pd.read_csv(path))


def _parquet(path: Path) -> Named:
    """Yield the cells of a table."""
    return _cells(pd.read_parquet(path))


def _cells(table: pd.DataFrame) -> Named:
    """Yield the cells of a table: numbers that are measured by the other cells of their row, not by its number."""
    measured = table.select_dtypes("float")
    names = table.drop(columns=measured.columns)
    yield "columns", ", ".join(map(str, table.columns))
    for key, row in zip(names.itertuples(index=False), measured.itertuples(index=False), strict=True):
        for column, value in zip(measured.columns, row, strict=True):
            yield f"{'/'.join(map(str, key))}/{column}", float(value)


def _safetensors(path: Path) -> Named:
    """Yield the numbers of a model, and what describes it."""
    with safe_open(str(path), "pt") as saved:
        for name, text in (saved.metadata() or {}).items():
            yield from _leaves(json.loads(text), f"description/{name}")
        for name in saved.keys():  # noqa: SIM118 - no mapping
            yield from ((f"{name}/{place}", value) for place, value in enumerate(
                saved.get_tensor(name).double().flatten().tolist()))


_READERS: Mapping[str, Callable[[Path], Named]] = {
    ".json": _json, ".toml": _toml, ".csv": _csv, ".parquet": _parquet, ".safetensors": _safetensors}
