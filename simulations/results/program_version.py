"""Which version of the program runs: that of the package, and the git revision where there is one."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = ("fedfair", "strategies", "simulations")


@lru_cache(maxsize=1)
def program_version() -> str:
    """Return the version of fedfair in words, like "0.1.0 (revision 1a2b3c4)"; where it was installed, without one."""
    known = _git("ls-files", "--error-unmatch", *_PROGRAM)  # it may be installed within a repository of something else
    revision = _git("rev-parse", "--short", "HEAD") if known else ""
    changed = ", with changes" if revision and _git("status", "--porcelain", "--", *_PROGRAM) else ""
    return f"{version('fedfair')}{f' (revision {revision}{changed})' if revision else ''}"


def _git(*arguments: str) -> str:
    """Return what git says in the program's folder; "" if it fails, or is not there."""
    try:
        said = subprocess.run(["git", "-C", str(_ROOT), *arguments],  # noqa: S603, S607 - fixed words, the user's git
                              capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
