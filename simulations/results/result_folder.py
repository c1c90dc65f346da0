"""The folder of a result: which experiment it holds, and how a new folder replaces it as a whole."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from fedfair.plugins.text_values import from_toml
from simulations.files.atomic_files import alone_in, refuse_unwritable
from simulations.settings.experiment import identity_of

CHECKPOINT, CHECKPOINT_TO_BE = "checkpoint.pt", ".checkpoint.new"
"""Files that an interrupted run leaves in its folder."""
RUNS_SO_FAR = "runs-so-far"
"""The folder that an interrupted comparison leaves in its folder."""


def same_identity(config: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the text of a config.toml describes what `settings` describe, defaults aside."""
    try:
        saved, now = from_toml(config), from_toml(tomli_w.dumps(dict(settings)))
    except tomllib.TOMLDecodeError:
        return False
    return identity_of(saved) == identity_of(now)


def refuse_other(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise `FileExistsError` if `folder` holds anything but an experiment of the same identity, and another
    `OSError` if it could not be written.
    """
    refuse_unwritable(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    config = folder / "config.toml"
    if not config.is_file():
        raise FileExistsError(f"{folder} exists and holds no experiment: choose another folder, or remove it")
    if not same_identity(config.read_text(encoding="utf-8"), settings):
        raise FileExistsError(f"{folder} holds a different experiment (see its config.toml): choose another folder, or "
                              "remove it")


def refuse_to_replace(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise what `refuse_other` does, and `OSError` if no new folder could replace `folder`.

    First a folder whose replacement was interrupted is brought back.
    """
    resolved = folder.resolve()
    _bring_back(resolved)
    if Path.cwd().is_relative_to(resolved) or resolved.is_mount():
        where = "where a disk is mounted" if resolved.is_mount() else "that you are in"
        raise OSError(f"{folder} cannot be the folder {where}: name one in it, for example {folder / 'out'}, because "
                      "results take the place of their folder as a whole")
    refuse_other(folder, settings)
    refuse_unwritable(resolved.parent)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which replaces `folder` as a whole, or not at all if an exception is raised.

    A link stays, and the folder that it names is replaced. What an attempt that was killed left over is removed; if
    that was between the old folder's going and the new one's coming, the old one comes back.

    Raises:
        BlockingIOError: If another process replaces the folder now: each would remove what the other has written.
    """
    folder = folder.resolve()
    new, old = _beside(folder, "new"), _beside(folder, "old")
    with alone_in(folder, "-replaced"):
        _tidy(folder)
        new.mkdir()
        try:
            yield new
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            _tidy(folder)


def _tidy(folder: Path) -> None:
    """Leave one folder, wherever a replacement was interrupted: the new one if it is in place."""
    _bring_back(folder)
    for state in ("new", "old"):
        shutil.rmtree(_beside(folder, state), ignore_errors=True)


def _bring_back(folder: Path) -> None:
    """Put the old folder back if no new one is in place."""
    old = _beside(folder, "old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def _beside(folder: Path, state: str) -> Path:
    """Return the path of the new or the old folder during a replacement."""
    return folder.with_name(f".{folder.name}.fedfair-{state}")


def carry_over(folder: Path, new: Path) -> None:
    """Copy what else a folder holds, a report or a person's notes, into the folder that replaces it."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in (CHECKPOINT, CHECKPOINT_TO_BE, RUNS_SO_FAR) and not (new / path.name).exists():
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, new / path.name, symlinks=True)
            else:
                shutil.copy2(path, new / path.name, follow_symlinks=False)
