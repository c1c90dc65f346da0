"""Seals of private files: they show that a file has changed, and reveal nothing of it to anyone without the key.

A plain hash of a file gives away a record to somebody who knows all others and tries what is left. A seal is an HMAC,
with a random salt, by a key that stays on this machine. Two seals of one file differ, so they do not even tell whether
two files are equal.
"""

from __future__ import annotations

import hmac
import logging
import os
from pathlib import Path
from secrets import token_bytes, token_hex

from filelock import FileLock
from platformdirs import user_state_path

from simulations.files.atomic_files import digest, in_place

log = logging.getLogger(__name__)

_BYTES = 32


def key_file() -> Path:
    """Return the path of the key: in the folder FEDFAIR_STATE_DIR, or else in the user's folder for such files."""
    folder = os.environ.get("FEDFAIR_STATE_DIR")
    return (Path(folder) if folder else user_state_path("fedfair")) / "file-key"


def seal(path: Path) -> str:
    """Return a new seal of a file's present content.

    Returns:
        Salt, sign of the key, and code, in hexadecimal, separated by colons; empty, with a warning, if no key can be
            kept on this machine.

    Raises:
        OSError: If the file cannot be read.
    """
    salt, content = token_hex(16), digest(path)
    try:
        return f"{salt}:{_code(salt)}:{_code(salt, content)}"
    except OSError as error:
        log.warning("nobody will be able to check whether %s has changed, because no key can be kept in %s: set "
                    "FEDFAIR_STATE_DIR to a folder that can be written (%s)", path, key_file().parent, error)
        return ""


def has_changed(path: Path, sealed: str) -> bool:
    """Say whether a file's content is another than the one that was sealed.

    If it was not sealed nobody can tell, and if the key of another machine sealed it nobody here: then return False, in
    the second case with a warning.

    Args:
        path: The file.
        sealed: What `seal` returned.

    Raises:
        OSError: If the file cannot be read, or no key can be kept.
    """
    if not sealed:
        return False
    salt, key, code = sealed.split(":")
    if not hmac.compare_digest(key, _code(salt)):
        log.warning("whether %s has changed cannot be checked here, because another machine's key sealed it: let all "
                    "machines share a folder FEDFAIR_STATE_DIR (here the key is %s)", path, key_file())
        return False
    return not hmac.compare_digest(code, _code(salt, digest(path)))


def _code(*parts: str) -> str:
    """Return the HMAC of texts by this machine's key."""
    return hmac.new(_key(), ":".join(parts).encode(), "sha256").hexdigest()


def _key() -> bytes:
    """Return this machine's key; make it on first use, readable for this user alone. Raise `OSError` if that fails."""
    file = key_file()
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(file.with_suffix(".lock")):
            if not file.is_file():
                with in_place(file) as new:
                    new.touch(0o600)
                    new.write_bytes(token_bytes(_BYTES))
    key = file.read_bytes()
    if len(key) != _BYTES:
        raise OSError(f"{file} is damaged: it holds {len(key)} bytes, not {_BYTES}; remove it, and a new key is made, "
                      "with which files that were sealed before cannot be checked")
    return key
