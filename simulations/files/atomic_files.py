"""Files that exist as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from filelock import FileLock, Timeout


def refuse_unwritable(folder: Path) -> None:
    """Raise `OSError` if files in `folder`, which need not exist yet, could not be written; change nothing."""
    refuse_unnameable(folder)
    whole = folder.resolve()
    nearest = next(path for path in (whole, *whole.parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{folder} cannot be written, because {nearest} is a file: choose another folder")
    try:
        TemporaryFile(dir=nearest).close()  # without a name; permissions tell less: of /proc, they allow it to root
    except OSError as error:
        raise PermissionError(f"{folder} cannot be written, because nothing may be changed in {nearest} "
                              f"({(error.strerror or str(error)).lower()}): choose another folder") from None


def refuse_unnameable(path: Path) -> None:
    """Raise `ValueError` or `OSError` for a path that no file can have: with a null character, or a loop of links."""
    if "\0" in str(path):
        raise ValueError(f"{path} has a null character, which no file's name can hold: choose another name")
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        path.stat()


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it at once; raise `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with in_place(path) as new:
        new.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as `write_text` does; raise `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with in_place(path) as new:
        new.write_bytes(content)


def refuse_as_file(path: Path, read: Path | None = None) -> None:
    """Raise `OSError` if a file could not be written at `path`, or should not; change nothing.

    It does not replace the file that is `read`, nor a file of a finished run, which cost epsilon; but its page.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it, for example {path / 'out'}{path.suffix}")
    _refuse_device(path)
    if read is not None and read.exists() and path.exists() and path.samefile(read):
        raise FileExistsError(f"{path} is the file that is read, which would be replaced: name another file")
    if path.name != PAGE and path.exists() and path.name in _files_of_a_run(path.parent):
        raise FileExistsError(f"{path} is a file of the result in {path.parent}, which would be lost, and the epsilon "
                              "that it cost with it: name another file")
    refuse_unwritable(path.parent)


PAGE = "report.html"
"""Page of a result's folder, which can be made anew."""


def _files_of_a_run(folder: Path) -> set[str]:
    """Return the names of the files that the ledgers of a folder tell of; none if there is no ledger."""
    with suppress(OSError, ValueError, AttributeError):
        ledger = json.loads((folder / "ledger.json").read_text(encoding="utf-8"))
        ledgers = [ledger] if "files" in ledger else ledger.values()
        return {"ledger.json"}.union(*(each["files"] for each in ledgers))
    return set()


def _refuse_device(path: Path) -> None:
    """Raise `FileExistsError` for a device or a pipe, such as /dev/null: a file would replace it, for everybody."""
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no plain file, but a device or a pipe, which a file would replace: name "
                              "another file")


@contextmanager
def in_place(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write a file under; the file then replaces `path`, or is removed if that fails.

    Raises `FileExistsError` for a device or a pipe.
    """
    _refuse_device(path)
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path, doing: str = "") -> Iterator[None]:
    """Keep other processes out of `folder`, as a context, by a lock file beside it; the lock ends with this process.

    `doing` names what is done in the folder, so that who runs there may save there too. Raises `BlockingIOError` if
    another process holds the lock, and another `OSError` if none can be made.
    """
    whole = folder.resolve()
    whole.parent.mkdir(parents=True, exist_ok=True)
    file = whole.with_name(f".{whole.name}{doing}.lock")
    file.touch()  # if this fails, the lock would too, but with an error that blames another process
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"{folder} is in use by another run: wait until that is done, or choose another folder"
                              ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        lock.release()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal, read once for each state of the file; raise `OSError` if it
    cannot be read.
    """
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _digest(path: Path, modified: int, size: int) -> str:
    """See `digest`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as `in_json`, as `write_text` does."""
    write_text(path, in_json(values) + "\n")


def in_json(values: Mapping[str, Any] | list[Any]) -> str:
    """Format values as JSON; numbers that are not finite, such as an epsilon without noise, become null."""
    return json.dumps(_finite(values), indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    """Replace every number that is not finite by None."""
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


