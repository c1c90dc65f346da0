"""What the files of a folder of many runs hold: a sweep's, whose trials have ledgers of their own, or that of curves.

files.json has the same two entries as a ledger: `files`, and why they cannot be published.

Curves in a folder: their configuration, their points and their picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from fedfair.accounting.contents import OTHER, Contents, Part, objections, to_json
from fedfair.fairness.intervals import Estimate
from fedfair.plugins.text_values import read_json
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawing
from simulations.files.atomic_files import alone_in, write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.curves import MEASURED, CurveRun
from simulations.plans.kept_runs import RUNS, RunFile, refuse_changed
from simulations.report.figures import differ, epsilon_axis
from simulations.results.environment import environment
from simulations.results.result_folder import CHECKPOINT, refuse_other

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
        yield ledger.parent.name, read_json(ledger).get("cannot_be_published_because", {})


@contextmanager
def kept_curves(folder: Path | None, settings: Mapping[str, Any], planned: Sequence[CurveRun]) -> Iterator[RunFile]:
    """Yield the finished runs in a folder of curves, which no other command may use meanwhile; None keeps none.

    Raises `FileExistsError` if the folder holds something else, `ValueError` if its runs used another state of one of
    the user's files, `BlockingIOError` if another command uses it, and another `OSError` if it cannot be written.
    """
    if folder is None:
        yield RunFile(None)
        return
    refuse_other(folder, settings)
    with alone_in(folder):
        for part in planned:
            refuse_changed(folder, part.made)
        yield RunFile(folder / RUNS, lambda: _begin(folder, settings, planned))


def _begin(folder: Path, settings: Mapping[str, Any], planned: Sequence[CurveRun]) -> None:
    """Write what the first run of a folder needs beside it, so that the same command goes on, and another does not."""
    write_json(folder / "environment.json", environment([part.made for part in planned]))
    write_text(folder / "config.toml", tomli_w.dumps(dict(settings)))


def write_curves(frame: pd.DataFrame, settings: Mapping[str, Any], folder: Path) -> None:
    """Write config.toml, first, so that an interrupted folder is recognised; then the curves, and files.json."""
    write_text(folder / "config.toml", tomli_w.dumps(dict(settings)))
    write_text(folder / "curves.csv", to_csv(frame))
    write_text(folder / "curves.svg", drawing(curve_figure(frame)))
    write_listing(folder, CURVES)


def curve_figure(frame: pd.DataFrame) -> Figure:
    """Show what `curves` returns: accuracy parity and accuracy over demographic parity, means over seeds.

    A strategy without a setting is a single point with a dashed line at its height. The dotted line marks a demographic
    parity of 0.1, as in Yang et al. 2024. Where epsilon varies along a curve, all are also shown over epsilon; what was
    not measured is left out.
    """
    frame = frame.reindex(columns=list(dict.fromkeys([*frame, "epsilon"])))  # which earlier curves have not
    shown = [metric for metric in MEASURED if frame[metric].notna().any()]
    means = frame.groupby(["strategy", "setting", "value"], dropna=False, sort=False)[[*MEASURED, "epsilon"]].mean()
    lines = list(means.reset_index().groupby("strategy", sort=False))
    panels = []
    if MEASURED[0] in shown:
        parity = Scale("demographic parity", guide=0.1)
        panels += [_panel(metric, parity, metric, lines, MEASURED[0]) for metric in shown[1:]]
    if any(differ(line["epsilon"][np.isfinite(line["epsilon"])].tolist()) for _, line in lines):
        ticks, at = epsilon_axis(means["epsilon"].tolist())
        placed = [(name, line.assign(place=line["epsilon"].map(at)).sort_values("place")) for name, line in lines]
        across = Scale("epsilon", ticks=ticks, epsilon=True)
        panels += [_panel(f"{metric} over epsilon", across, metric, placed, "place") for metric in reversed(shown)]
    return Figure("curves", "What demographic parity costs, on test data", "", tuple(panels))


def _panel(title: str, across: Scale, metric: str, lines: Sequence[tuple[Any, pd.DataFrame]], place: str) -> Panel:
    """Show a metric over the column `place` of each strategy's means."""
    series = []
    for number, (name, means) in enumerate(lines):
        places = zip(means[place], means[metric], strict=True)
        points = tuple(Point(Estimate(x), Estimate(y)) for x, y in places)
        series.append(Series(str(name), number, points, joined=len(points) > 1, level=len(points) == 1))
    return Panel(title, across, Scale(metric.replace("_", " ")), tuple(series))
