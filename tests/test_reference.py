"""Every public entry of the reference explains its arguments, and every setting describes itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reference.md").read_text()
ENTRY = re.compile(r"^::: ([\w.]+)(?:\n    options:\n      members: \[(.*?)\])?", re.MULTILINE)


def resolved(name: str) -> Any:
    """Return the module, class or function of a dotted name."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        return getattr(resolved(parent), last)


def documented(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the functions, methods and classes that an entry shows, by name."""
    if isinstance(value, ModuleType):
        for key, member in vars(value).items():
            mine = getattr(member, "__module__", None) == value.__name__
            if not key.startswith("_") and mine and (inspect.isclass(member) or inspect.isfunction(member)):
                yield from documented(member, f"{name}.{key}")
        return
    yield name, value
    if inspect.isclass(value) and not issubclass(value, BaseModel):
        for key, member in vars(value).items():
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if not key.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{key}", function


def unexplained(value: Any) -> list[str]:
    """Return the parameters of a function, or of a class, that its docstring does not explain."""
    doc = inspect.getdoc(value) or ""
    if doc.startswith("See `"):
        return []
    try:
        names = [name for name in inspect.signature(value).parameters if name not in ("self", "cls", "_")]
    except ValueError:  # a class without a signature of its own
        return []
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", f"{doc}\n", re.MULTILINE)
    explained = re.findall(r"^    \*{0,2}(\w+)(?: \(.*?\))?:", section.group(1), re.MULTILINE) if section else []
    return [name for name in names if name not in explained]


def entries(page: str = PAGE) -> list[tuple[str, Any]]:
    """Return all that a page shows, by default the reference."""
    shown = []
    for name, members in ENTRY.findall(page):
        for part in [f"{name}.{member.strip()}" for member in members.split(",")] if members else [name]:
            shown += list(documented(resolved(part), part))
    return shown


def test_every_entry_explains_its_arguments() -> None:
    for name, value in entries():
        if inspect.isclass(value) and issubclass(value, BaseModel):
            described = {key for key, field in value.model_fields.items() if field.description}
            assert described or not unexplained(value), name
            assert not described or described == set(value.model_fields), name
        elif not (inspect.isclass(value) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False))):
            assert unexplained(value) == [], name


def test_an_argument_without_a_line_is_found() -> None:
    def explained(rate: float, steps: int) -> None:
        pass

    explained.__doc__ = "Do it.\n\nArgs:\n    rate: Sampling rate."

    assert len(entries()) > 80
    assert unexplained(explained) == ["steps"]
