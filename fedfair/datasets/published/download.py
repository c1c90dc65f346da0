"""Public data files: from FEDFAIR_DATA_DIR, or downloaded once into a cache, and read only if their hash is right."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True)
class PublicFile:
    """A file on the web: its local name, its address, and the SHA-256 of its content.

    `content` makes the content of the file's bytes, for example `gzip.decompress`; by default they are the content. For
    an archive `archives` holds the SHA-256 of the files that are known to hold this content, since mirrors compress
    differently: any other file is refused before it is unpacked.
    """

    name: str
    url: str
    sha256: str
    content: Callable[[bytes], bytes] = bytes
    archives: tuple[str, ...] = ()


def fetch(file: PublicFile) -> Path:
    """Return the path of a verified copy.

    It is in the folder FEDFAIR_DATA_DIR if that is set, and else in the user's cache, downloaded on first use. Raises
    `FileNotFoundError` if there is no copy, and `ValueError` if its content is not the expected one.
    """
    folder = os.environ.get("FEDFAIR_DATA_DIR")
    if folder:
        path = Path(folder) / file.name
        if not path.is_file():
            raise FileNotFoundError(f"{file.name} is not in FEDFAIR_DATA_DIR ({folder}): put it there, or unset the "
                                    f"variable to download it from {file.url}")
        actual = _hash(file, path)
        if actual != file.sha256:
            raise ValueError(f"{path} is not the published file (SHA-256 {actual[:12]}..., expected "
                             f"{file.sha256[:12]}...): it is truncated or changed; replace it")
        return path
    return _download(file)


def data_folder(name: str) -> Path | None:
    """Return the folder `name` in FEDFAIR_DATA_DIR, or None if that is not set or has no such folder."""
    parent = os.environ.get("FEDFAIR_DATA_DIR")
    folder = Path(parent, name) if parent else None
    return folder if folder and folder.is_dir() else None


def _download(file: PublicFile) -> Path:
    """Return the path of the copy in the user's cache, downloading it on first use; a wrong copy is removed."""
    import pooch  # here, since who has the files does without

    try:
        path = Path(pooch.retrieve(file.url, None, fname=file.name, path=pooch.os_cache("fedfair"),
                                   progressbar=sys.stderr.isatty()))
    except OSError as error:
        raise FileNotFoundError(f"could not download {file.name} from {file.url}: check the network, or set "
                                "FEDFAIR_DATA_DIR to a folder that holds it") from error
    if _hash(file, path) != file.sha256:
        path.unlink()
        raise ValueError(f"the download of {file.name} from {file.url} is truncated or changed: try again, or set "
                         "FEDFAIR_DATA_DIR to a folder with a good copy")
    return path


def _hash(file: PublicFile, path: Path) -> str:
    """Return the SHA-256 of a copy's content, "unknown" for an archive that is not unpacked, or "unreadable"."""
    try:
        copy = path.read_bytes()
        if file.archives and sha256(copy).hexdigest() not in file.archives:
            return "unknown"
        return sha256(file.content(copy)).hexdigest()
    except (OSError, EOFError, ValueError, KeyError):
        return "unreadable"
