"""What runs in a process: its environment, fedfair's source, and the libraries that compute.

Sent to other machines by value, where this module may be missing or another one: it needs the standard library alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("fedfair", "strategies", "simulations")
_NOT_INSTALLED = "simulations/benchmarks"  # in a checkout alone
_LIBRARIES = ("torch", "numpy")


def program() -> dict[str, str]:
    """Return what runs here, in words by name: the "environment", "fedfair" as a digest of its source, and libraries.

    A library's version is without the device that it was built for; what is missing is "none".
    """
    return {"environment": sys.prefix, "fedfair": _source(),
            **{name: _installed(name) for name in _LIBRARIES}}


def _source() -> str:
    """Return a digest of the files of fedfair's packages, the same of a checkout and of what is installed from it."""
    found = importlib.util.find_spec("fedfair")
    if found is None or found.origin is None:
        return "none"
    root, digest = Path(found.origin).parents[1], hashlib.sha256()
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            if not name.startswith(_NOT_INSTALLED):
                digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:8]


def _installed(name: str) -> str:
    """Return the version of a library."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return "none"
