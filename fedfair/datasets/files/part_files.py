"""The files of one table: one, all of a folder, or those that a pattern such as parts/*.csv names."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path
from urllib.parse import unquote

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a missing value in the name of a folder."""


_PARTS = "dataset_dict.json"
"""Stands in a folder of which each folder is a table of Hugging Face's `save_to_disk`."""


def part_files(path: Path) -> list[Path]:
    """Return the files of a table, sorted by name; none if there are none.

    Args:
        path: A file, a folder, or a pattern. In a folder, names that begin with a dot or a low line are not meant, and
            folders in it only if their names hold values (`folder_values`); where Hugging Face's `save_to_disk` wrote
            it, the data alone, not what describes them.

    Raises:
        ValueError: If a link in the folder, or among what the pattern names, leads out of it: whoever may write there
            could have any file read; or if the folder holds several tables of Hugging Face.
    """
    if path.is_file():
        return [path]
    if path.is_dir():
        files = _files_in(path)
    else:
        files = sorted(file for file in map(Path, glob(str(path))) if file.is_file()) if has_magic(str(path)) else []
    _refuse_links_out(files, path if path.is_dir() else Path(*path.parts[:_first_magic(path)]))
    return files


def _files_in(path: Path) -> list[Path]:
    """Return the files of a folder that are meant, sorted by name."""
    if (path / _PARTS).is_file():
        parts = sorted(each.name for each in path.iterdir() if (each / "state.json").is_file())
        raise ValueError(f"{path} holds the tables {', '.join(parts)} of a data set of Hugging Face: name one of them, "
                         f"for example {path / parts[0] if parts else path}")
    saved = (path / "state.json").is_file() and (path / "dataset_info.json").is_file()
    found = sorted(each for each in path.iterdir() if each.name[0] not in "._")
    files = [file for file in found if file.is_file() and (file.suffix == ".arrow" or not saved)]
    for folder in found:
        files += _files_in(folder) if folder.is_dir() and "=" in folder.name.strip("=") else []
    return files


def _refuse_links_out(files: Iterable[Path], folder: Path) -> None:
    """Raise `ValueError` for a file that a link puts into a folder, but that lies elsewhere."""
    whole = folder.resolve()
    for file in files:
        if not file.resolve().is_relative_to(whole):
            raise ValueError(f"{file} leads by a link out of {folder} to {file.resolve()}: copy the file into the "
                             "folder, or name it itself")


def _first_magic(path: Path) -> int:
    """Return the place of the first part of a path that is a pattern; how many parts there are if none is."""
    return next((place for place, part in enumerate(path.parts) if has_magic(part)), len(path.parts))


def folder_values(file: Path, path: Path) -> dict[str, str]:
    """Return the values that a file's rows have by the names of its folders, such as job=nurse, as Spark writes them.

    Args:
        file: One of the files of a table.
        path: The table: a file, whose folders mean nothing; a folder, in which those mean something; or a pattern.

    Examples:
        >>> file = Path("a=b/hired/year=2024/job=care%20worker/part-0.parquet")
        >>> folder_values(file, Path("a=b/hired")), folder_values(file, Path("a=b/*/*/job=*/*"))
        ({'year': '2024', 'job': 'care worker'}, {'year': '2024', 'job': 'care worker'})
        >>> folder_values(file, file)
        {}
    """
    named = [part.partition("=") for part in file.parts[_first_magic(path):-1] if "=" in part.strip("=")]
    return {unquote(name): "" if value == _NO_VALUE else unquote(value) for name, _, value in named}


def table_name(path: Path) -> str:
    """Return the name of a table: that of its file, or of the folder that holds its files.

    Args:
        path: A file, a folder, or a pattern.
    """
    if path.is_file() or not has_magic(str(path)):
        return path.stem
    return next((parent.name for parent in path.parents if parent.name and not has_magic(parent.name)), "table")
