"""Files that are there as a whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a file under another name and put it in place at once; raises `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, as `write_text` does."""
    write_text(path, json.dumps(values, indent=1) + "\n")
