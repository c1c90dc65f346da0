"""Which program a machine runs: the version of fedfair, and a digest of its source."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


@lru_cache(maxsize=1)
def program() -> str:
    """Return the version of fedfair with a digest of all of its Python files, "0.1.0 (source 1a2b3c4d5e6f)".

    Server and nodes compare it, against mistakes: a node that lies can say what it likes.
    """
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version('fedfair')} (source {digest.hexdigest()[:12]})"
