"""Files that are there as a whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def refuse_unwritable(folder: Path) -> None:
    """Raise `OSError` if files in `folder`, which may have to be made, could not be written; changes nothing."""
    place = folder.resolve()
    nearest = next(path for path in (place, *place.parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{folder} cannot be written, because {nearest} is a file: choose another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written, because nothing may be changed in {nearest}: choose "
                              "another folder")


def write_text(path: Path, text: str) -> None:
    """Write a file under another name and put it in place at once; raises `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, as `write_text` does."""
    write_text(path, json.dumps(values, indent=1) + "\n")
