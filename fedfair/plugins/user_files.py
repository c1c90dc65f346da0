"""Python files of the user's, found by name: methods and models that are not published."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

_State = tuple[Path, int, int]  # of a file: where it is, when it was changed, and its size

_DEFINED: dict[_State, Mapping[str, Any]] = {}
_LOCK = RLock()  # held again where one file asks for another


def file_name(name: str) -> str:
    """Return the name of the file that defines "my-method": my_method.py."""
    return f"{name.replace('-', '_')}.py"


def user_file(name: str, folders: Iterable[str]) -> Path | None:
    """Return the file that defines `name`, from the first of the folders, below the current one, that has it.

    A name with anything but letters, digits, _ and - has no file: it cannot lead to another folder.
    """
    file = file_name(name)
    if not Path(file).stem.isidentifier() or Path(file).name != file:
        return None
    return next((path for path in (Path(folder, file) for folder in folders) if path.is_file()), None)


def defined_in(path: Path) -> Mapping[str, Any]:
    """Return the classes and functions that a file defines, by name, without those that it imports.

    The file is run to get them, once in a process unless it is changed: every caller gets the same classes.
    """
    status = path.stat()
    state = (path.resolve(), status.st_mtime_ns, status.st_size)
    with _LOCK:
        if state not in _DEFINED:
            _DEFINED[state] = _run(path)
        return _DEFINED[state]


def _run(path: Path) -> Mapping[str, Any]:
    """Run a file, and return what it defines."""
    name = f"user_file_{path.stem}"  # not the stem alone, which may be that of a module that the file imports
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up their annotations
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]  # else pickle would expect other processes to find the module by this name
    return {key: value for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
