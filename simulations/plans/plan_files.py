"""What the files of a folder of many runs hold: a sweep's, whose trials have ledgers of their own, or that of curves.

files.json has the same two entries as a ledger: `files`, and why they cannot be published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedfair.accounting.contents import OTHER, Contents, Part, objections, to_json
from simulations.results.atomic_files import write_json
from simulations.results.result_folder import CHECKPOINT
from simulations.results.run_file import RUNS

FILES = "files.json"

_TRIALS = "trials"
_LISTING = (Part("what the files hold, and what protects it", "public"),)
_SETTINGS = (Part("settings as you gave them, with the seed", "public"),)
_STATE = (Part("where a run stood that has not ended: weights, ledger and metrics so far", "unknown"),)
_HELD_OUT = Part("figures of the validation and the test part", "held-out")

SWEEP: Contents = {
    "config.toml": _SETTINGS, "summary.csv": (_HELD_OUT, Part("epsilon, whose ledger is in each trial", "releases")),
    "trials.csv": (_HELD_OUT, Part("settings of the trials, and how they ended", "public"),
                   Part("epsilon, whose ledger is in each trial", "releases")),
    "search.json": (Part("which trial is best on the validation part, and its value there", "held-out"),),
    "report.html": (_HELD_OUT, Part("what the ledgers of the trials have, which say how it is protected", "releases"),
                    *_SETTINGS)}
"""Files of a sweep, but for those of its trials."""

CURVES: Contents = {
    "config.toml": _SETTINGS,
    "environment.json": (Part("versions, how noise was drawn, and a seal of your table by a key that stays on your "
                              "machine", "no records"),),
    **dict.fromkeys((RUNS, "curves.csv", "curves.svg"), (
        Part("parity and accuracy on the test part", "held-out"),
        Part(f"how models do, and what they spent, whose ledgers are in {RUNS}", "unknown")))}
"""Files of curves."""

QUOTED: Contents = {"trials.csv": (*SWEEP["trials.csv"], Part("error texts, which may quote records", "training"))}
"""What trials.csv holds where trials failed whose figures are exact."""

_TRIAL: Contents = {
    "config.toml": _SETTINGS, CHECKPOINT: _STATE,
    "stopped.json": (_HELD_OUT, Part("epsilon when the trial was stopped", "releases"))}
"""Files of a trial that has not finished."""


def write_listing(folder: Path, known: Contents) -> None:
    """Write files.json: every file of the folder, and why it cannot be published.

    Args:
        folder: Folder of a sweep or of curves, with all its other files.
        known: Parts of the files that fedfair writes, by name.
    """
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    added = {"report.html"} & known.keys()
    files = {name: _parts(name, folder, known) for name in sorted(names | added | {FILES})}
    reasons = objections(files, "record", None)
    for trial, because in _trial_objections(folder):
        for whose, why in because.items():
            reasons[whose] = [*reasons.get(whose, ()), *(f"{trial}: {reason}" for reason in why)]
    write_json(folder / FILES, {"files": to_json(files), "cannot_be_published_because": reasons})


def _parts(name: str, folder: Path, known: Contents) -> tuple[Part, ...]:
    """Return what a file holds, by its path in the folder."""
    path = Path(name)
    if name == FILES:
        return _LISTING
    if path.parts[0] == _TRIALS and len(path.parts) == 3:
        if (folder / path.parent / "ledger.json").is_file():
            return (Part(f"see {_TRIALS}/{path.parts[1]}/ledger.json, which has the files of this trial", "releases"),)
        return _TRIAL.get(path.name, OTHER)
    return known.get(name, OTHER)


def _trial_objections(folder: Path) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield why each finished trial cannot be published, by its name."""
    for ledger in sorted(folder.glob(f"{_TRIALS}/*/ledger.json")):
        yield ledger.parent.name, json.loads(ledger.read_text(encoding="utf-8")).get("cannot_be_published_because", {})
