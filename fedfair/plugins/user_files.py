"""Python files of the user's own, found by name: methods and models that are not published."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def file_name(name: str) -> str:
    """The file in which "my-method" is looked for: my_method.py."""
    return f"{name.replace('-', '_')}.py"


def own_file(name: str, folders: Iterable[str]) -> Path | None:
    """The file for a name in the first of the folders, below the current one, that has it; a name with anything but
    letters, digits, _ and - has none, so that it leads to no other folder.
    """
    file = file_name(name)
    if not Path(file).stem.isidentifier() or Path(file).name != file:
        return None
    return next((path for path in (Path(folder, file) for folder in folders) if path.is_file()), None)


def defined_in(path: Path) -> Mapping[str, Any]:
    """The classes and functions that a file defines by their names, without those that it imports: it is run to get
    them.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__}
