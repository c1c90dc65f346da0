"""The folder of one trial: finished, stopped early, or made with files of the user's that have changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from fedfair.mechanisms.randomness import key
from simulations.results.atomic_files import write_text
from simulations.results.environment import own_programs, own_tables
from simulations.results.file_seal import has_changed
from simulations.settings.experiment import Experiment


class Reached(NamedTuple):
    """Where a trial stood when it was stopped early, and what it had released by then."""

    percent: float
    value: float
    epsilon: float
    delta: float


def trial_name(experiment: Experiment) -> str:
    """Return a folder's name that tells an experiment from every other one."""
    number = key(json.dumps(experiment.identity(), sort_keys=True))
    return f"{experiment.dataset}-{experiment.strategy}-{experiment.seed}-{number:016x}"


def is_finished(folder: Path) -> bool:
    """Return whether a trial's folder holds its result, or the note that it was stopped early."""
    return (folder / "summary.csv").is_file() or stopped(folder) is not None


def refuse_changed(folder: Path, experiment: Experiment) -> None:
    """Raise `ValueError` if a finished trial in `folder` used another state of one of the user's files."""
    made = folder / "environment.json"
    then = json.loads(made.read_text(encoding="utf-8")) if made.is_file() else {}
    programs, tables = then.get("own_files_sha256", {}), then.get("own_tables_sealed", {})
    changed = [name for name, now in own_programs(experiment).items() if programs.get(name, now) != now]
    changed += [name for name, table in own_tables(experiment).items() if has_changed(table, tables.get(name, ""))]
    if changed:
        raise ValueError(f"{changed[0]} has changed since {folder} was made: restore it, or take another folder")


def note_stopped(folder: Path, reached: Reached) -> None:
    """Note in a trial's folder that it was stopped early, and where it stood."""
    write_text(folder / "stopped.json", json.dumps(reached._asdict()))


def stopped(folder: Path) -> Reached | None:
    """Return where a trial was stopped early, or None."""
    note = folder / "stopped.json"
    return Reached(**json.loads(note.read_text(encoding="utf-8"))) if note.is_file() else None
