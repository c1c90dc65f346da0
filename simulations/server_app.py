"""The Flower ServerApp: what `flwr run .` starts, in whatever environment the SuperLink was started from."""

from __future__ import annotations

import logging
import platform
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
"""Beside the program in a checkout, and in the app that `flwr run` sends."""

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config, save it, and end the log with its table.

    A run that was stopped goes on after its last checkpoint in the folder `out`.
    Raises `ValueError`, `OSError` or `fedfair.node.node.ClientError` with one sentence saying what is wrong.
    """
    refuse_unfit("the SuperLink was started from another environment than this app's; `fedfair superlink` says how to "
                 "end it")  # before the imports that would fail
    from simulations.flower_run import serve

    serve(grid, context)


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
