"""Curves in a folder: their configuration, their points and their picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from simulations.plans.curves import MEASURED, Part
from simulations.plans.plan_files import CURVES, write_listing
from simulations.plans.trial_folder import refuse_changed
from simulations.report.estimates import Estimate
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.panels import drawing
from simulations.report.tradeoffs import differ, epsilon_axis
from simulations.results.atomic_files import alone_in, write_json, write_text
from simulations.results.csv_text import to_csv
from simulations.results.environment import environment
from simulations.results.result_folder import refuse_other
from simulations.results.run_file import RUNS, RunFile


@contextmanager
def kept_curves(folder: Path | None, settings: Mapping[str, Any], planned: Sequence[Part]) -> Iterator[RunFile]:
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


def _begin(folder: Path, settings: Mapping[str, Any], planned: Sequence[Part]) -> None:
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
