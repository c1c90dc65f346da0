"""Where and how results were made: versions, randomness, and which parts are not private.

Which version of the program runs: that of the package, and the git revision where there is one.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import strategies
from fedfair.datasets.files.part_files import part_files
from fedfair.models import find
from fedfair.protocol.record_settings import NODES
from simulations.files.atomic_files import digest
from simulations.files.file_seal import seal
from simulations.settings.experiment import Experiment

_PACKAGES = ("fedfair", "flwr", "torch", "numpy", "pandas", "scipy", "scikit-learn")
_RANDOMNESS = {"seeded": "seeded generators, for simulation: anyone with the seed can reconstruct batches and noise",
               "system": "batches and noise from the operating system"}
_NOISE = {"gaussian": "Gaussian in floating point, not hardened against attacks on its low bits",
          "discrete": "exact discrete Gaussian on a public grid"}


def own_programs(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of each of the user's programs that a run depends on, by its path in the current folder."""
    programs = (strategies.file_of(experiment.strategy), find.file_of(experiment.model))
    return {str(path): digest(path) for path in programs if path is not None and path.is_file()}


def own_tables(experiment: Experiment) -> dict[str, Path]:
    """Return the files of the user's table that a run depends on, if they are on this machine, by their names."""
    return {file.name: file for file in part_files(Path(experiment.csv))} if experiment.csv else {}


def environment(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Describe how results were made: versions and machine type, and how noise was drawn.

    Programs of the user's own are named with their SHA-256, tables with a seal (see `simulations.files.file_seal`).
    `not_private` lists what is not private. Nothing identifies a person.
    """
    tables: dict[str, Path] = {}
    programs: dict[str, str] = {}
    for experiment in experiments:
        tables |= own_tables(experiment)
        programs |= own_programs(experiment)
    tasks = [experiment.task for experiment in experiments]
    learned = [] if all(task.prepares != "records" or task.ranges for task in tasks) else [
        "means and deviations for standardisation come from the training part"]
    if any(task.prepares == "records" for task in tasks):
        learned.append("the values that a column can take are read off the data")
    exact = ["all metrics are computed without noise"] if any(
        experiment.figures != "private" for experiment in experiments) else []
    if any(task.partition != NODES for task in tasks):
        learned.append("the values that a label or a group can take are read off the data")
    return {
        "python": platform.python_version(), "machine": platform.machine(), "system": platform.system(),
        "packages": {name: installed(name) for name in _PACKAGES},
        "own_files_sha256": programs, "own_tables_sealed": {name: seal(table) for name, table in tables.items()},
        "randomness": sorted({_RANDOMNESS[experiment.randomness] for experiment in experiments}),
        "noise": sorted({_NOISE[experiment.noise] for experiment in experiments}),
        "not_private": [*learned, *exact],
    }


@cache
def installed(name: str) -> str:
    """Return the version of an installed package, which stays the same while a process runs."""
    return version(name)


_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = ("fedfair", "strategies", "simulations")


@lru_cache(maxsize=1)
def program_version() -> str:
    """Return the version of fedfair in words, like "0.1.0 (revision 1a2b3c4)"; where it was installed, without one."""
    known = _git("ls-files", "--error-unmatch", *_PROGRAM)  # it may be installed within a repository of something else
    revision = _git("rev-parse", "--short", "HEAD") if known else ""
    changed = ", with changes" if revision and _git("status", "--porcelain", "--", *_PROGRAM) else ""
    return f"{installed('fedfair')}{f' (revision {revision}{changed})' if revision else ''}"


def _git(*arguments: str) -> str:
    """Return what git says in the program's folder; "" if it fails, or is not there."""
    try:
        said = subprocess.run(["git", "-C", str(_ROOT), *arguments],  # noqa: S603, S607 - fixed words, the user's git
                              capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
