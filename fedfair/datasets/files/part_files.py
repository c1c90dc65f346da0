"""The files of one table: one, all of a folder, or those that a pattern such as parts/*.csv names."""

from __future__ import annotations

from glob import glob, has_magic
from pathlib import Path


def part_files(path: Path) -> list[Path]:
    """Return the files of a table, sorted by name; none if there are none.

    Args:
        path: A file, a folder, or a pattern. In a folder, names that begin with a dot or a low line are not meant.
    """
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file() and file.name[0] not in "._")
    return sorted(file for file in map(Path, glob(str(path))) if file.is_file()) if has_magic(str(path)) else []


def table_name(path: Path) -> str:
    """Return the name of a table: that of its file, or of the folder that holds its files.

    Args:
        path: A file, a folder, or a pattern.
    """
    if path.is_file() or not has_magic(str(path)):
        return path.stem
    return next((parent.name for parent in path.parents if parent.name and not has_magic(parent.name)), "table")
