"""Public data files: from FEDFAIR_DATA_DIR, or downloaded once into a cache; never read unless the hash is right."""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pooch


@dataclass(frozen=True)
class PublicFile:
    """A file on the web: its name here, where it comes from, and the SHA-256 of its content."""

    name: str
    url: str
    sha256: str


def fetch(file: PublicFile) -> Path:
    """The path of a verified copy.

    Looks into the folder FEDFAIR_DATA_DIR if that is set, else into the user's cache, downloading on first use.
    Raises `FileNotFoundError` if there is none to be had and `ValueError` if its content is not the expected one.
    """
    path = _in_folder(file)
    if path is None:
        return _downloaded(file, f"sha256:{file.sha256}")
    _verify(file, path, pooch.file_hash(str(path)))
    return path


def fetch_unzipped(file: PublicFile) -> bytes:
    """The content of a gzip file, whose SHA-256 is that of the content: mirrors compress it differently.

    Looks and raises as `fetch` does.
    """
    path = _in_folder(file) or _downloaded(file, None)
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        content = b""
    _verify(file, path, sha256(content).hexdigest())
    return content


def _in_folder(file: PublicFile) -> Path | None:
    """The file's path in FEDFAIR_DATA_DIR, or None if that is not set."""
    folder = os.environ.get("FEDFAIR_DATA_DIR")
    if not folder:
        return None
    path = Path(folder) / file.name
    if not path.is_file():
        raise FileNotFoundError(f"{file.name} is not in FEDFAIR_DATA_DIR ({folder}): put it there, or unset the "
                                f"variable to download it from {file.url}")
    return path


def _downloaded(file: PublicFile, known_hash: str | None) -> Path:
    """The file's path in the cache, after a download if need be."""
    try:
        return Path(pooch.retrieve(file.url, known_hash, fname=file.name.replace("/", "-"),
                                   path=pooch.os_cache("fedfair")))
    except OSError as error:
        raise FileNotFoundError(f"could not download {file.name} from {file.url}: check the network, or set "
                                "FEDFAIR_DATA_DIR to a folder that holds it") from error
    except ValueError as error:
        raise ValueError(f"the download of {file.name} from {file.url} is truncated or changed: try again, or set "
                         "FEDFAIR_DATA_DIR to a folder with a good copy") from error


def _verify(file: PublicFile, path: Path, found: str) -> None:
    """Raise `ValueError` unless the content found is the published one."""
    if found != file.sha256:
        raise ValueError(f"{path} is not the published file (SHA-256 {found[:12]}..., expected "
                         f"{file.sha256[:12]}...): it is truncated or changed; replace it")
