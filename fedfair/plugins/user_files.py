"""Python files of the user's, found by name: methods and models that are not published."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from fedfair.plugins.user_errors import UserFileError, blaming_user_files, note_user_file

METHOD_FOLDERS = ("", "strategies")
"""The folders, below the current one, in which files with methods, clip rules, queries and exchanges are looked up."""

_PREFIX = "user_file_"  # of the module of a user's file; not its name alone, which a module that it imports may have

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

    The file is run to get them, once in a process unless it is changed: every caller gets the same classes. Raises
    `fedfair.plugins.user_errors.UserFileError` with the line for what is wrong in it.
    """
    status = path.stat()
    state = (path.resolve(), status.st_mtime_ns, status.st_size)
    with _LOCK:
        if state not in _DEFINED:
            _DEFINED[state] = _run(path)
        return _DEFINED[state]


def name_in_file(definition: Any) -> str | None:
    """Return the name "file.Class" of a class or function that a user's file defines, or None for any other."""
    module = str(definition.__module__)
    return f"{module.removeprefix(_PREFIX)}.{definition.__name__}" if module.startswith(_PREFIX) else None


def find_in_file(name: str) -> Any:
    """Return what `name_in_file` names, from a file in `METHOD_FOLDERS`; None if there is no such file or name.

    The name may come from a server. So a file is read first, and run only if it defines the name at its top level.
    """
    stem, _, key = name.partition(".")
    path = user_file(stem, METHOD_FOLDERS)
    if path is None or key not in _top_level(path):
        return None
    return defined_in(path).get(key)


def _top_level(path: Path) -> set[str]:
    """Return the names of the classes and functions that a file defines at its top level, without running it."""
    note_user_file(path, f"{_PREFIX}{path.stem}")
    with blaming_user_files():
        program = _as_python(path, ast.parse)
    return {node.name for node in program.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _as_python(path: Path, parse: Callable[[bytes, str], Any]) -> Any:
    """Parse or compile a file; raise `UserFileError` for one in which Python itself finds no line to blame."""
    try:
        return parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError) and error.filename:
            raise
        said = "it is nested too deep" if isinstance(error, RecursionError | MemoryError) else error
        raise UserFileError(f"{path} cannot be read as Python ({said}): save it as text in UTF-8, or write it in "
                            "shorter expressions") from None


def _run(path: Path) -> Mapping[str, Any]:
    """Run a file, and return what it defines; raise `UserFileError` with the line for what is wrong in it."""
    note_user_file(path, f"{_PREFIX}{path.stem}")
    with blaming_user_files():
        return _executed(path)


def _executed(path: Path) -> Mapping[str, Any]:
    """Compile and run a file, and return what it defines."""
    name = f"{_PREFIX}{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Not by importlib: its bytecode is taken as current for a file of the same size within the same second.
    program = _as_python(path, partial(compile, mode="exec"))
    sys.modules[name] = module  # where dataclasses look up their annotations
    try:
        exec(program, vars(module))  # noqa: S102 - the user's own file
    finally:
        del sys.modules[name]  # else pickle would expect other processes to find the module by this name
    return {key: value for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
