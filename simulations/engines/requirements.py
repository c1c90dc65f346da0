"""Whether an environment has what the program needs: `flwr run` may meet one that was made for something else."""

from __future__ import annotations

import platform
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
"""Beside the program in a checkout, and in the app that `flwr run` sends."""


def refuse_unfit(mend: str) -> None:
    """Raise `ValueError` if this environment lacks what the program needs.

    Args:
        mend: What to do then, for example "install it".
    """
    missing = unmet(PYPROJECT)
    if missing:
        raise ValueError(f"{sys.prefix} does not have what this app needs, {', '.join(missing)}: {mend}")


def unmet(pyproject: Path) -> list[str]:
    """Return what this environment lacks, in words.

    Args:
        pyproject: A pyproject.toml; nothing is lacking if there is none.
    """
    if not pyproject.is_file():
        return []
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    needed = {"Python": SpecifierSet(project.get("requires-python", ""))}
    for text in project.get("dependencies", []):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            needed[requirement.name] = requirement.specifier
    return [f"{name}{allowed} ({'has ' + has if has else 'has none'})" for name, allowed in needed.items()
            if not (has := _installed(name)) or not allowed.contains(has, prereleases=True)]


def _installed(name: str) -> str | None:
    """Return the version of Python, or of a package, or None."""
    if name == "Python":
        return platform.python_version()
    # A copy: Flower's other thread takes entries out of sys.path, and a search that is under way then skips a folder.
    found = next(iter(distributions(name=name, path=[*sys.path])), None)
    return found.version if found else None
