"""The files of a page that are no Python, and where they are: Flower sends no HTML, CSS or JavaScript with an app.

So a run that `flwr run` sent takes those of the fedfair that is installed where it runs, if that is the same one.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedfair.datasets.names import visible

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


@cache
def templates(package: str) -> Environment:
    """Return a package's page and its parts: every text is escaped, and shows the control characters of names."""
    return Environment(loader=FileSystemLoader(page_folder(package)), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, finalize=_visible)


def as_it_is(environment: Environment, name: str) -> Markup:
    """Return a file of a package, to put into the page unescaped."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 - our own style and script


def _visible(value: object) -> object:
    """Show control characters in names from the data; lines of a configuration stay lines."""
    return visible(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(folder: Path) -> dict[str, bytes]:
    """Return the Python files of a package by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}
