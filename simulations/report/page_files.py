"""The files of a page that are no Python, and where they are: Flower sends no HTML, CSS or JavaScript with an app.

So a run that `flwr run` sent takes those of the fedfair that is installed where it runs, if that is the same one.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def page_folder(package: str) -> Path:
    """Return the folder with the files of a package's page.

    Args:
        package: Name of the package, for example simulations.fitting.

    Raises:
        FileNotFoundError: If they are neither beside this program nor where the same program is installed.
    """
    place = Path(*package.split("."))
    for root in (_ROOT, *map(Path, sys.path)):
        if (root / place / "page").is_dir() and _source(root / place) == _source(_ROOT / place):
            return root / place / "page"
    raise FileNotFoundError(f"the page of {package} is not on this machine: Flower sends no HTML with an app, so "
                            "install the same version of fedfair here as in the app")


def _source(folder: Path) -> dict[str, bytes]:
    """Return the Python files of a package by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}
