"""Curves in a folder: their configuration, their points and their picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from simulations.plans.curves import MEASURED
from simulations.plans.plan_files import CURVES, write_listing
from simulations.report.estimates import Estimate
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.panels import drawing
from simulations.results.atomic_files import write_text
from simulations.results.csv_text import to_csv
from simulations.results.result_folder import refuse_other


def save_curves(frame: pd.DataFrame, settings: Mapping[str, Any], folder: Path) -> Path:
    """Write the curves as `write_curves` does; raise `FileExistsError` if the folder holds something else."""
    refuse_other(folder, settings)
    write_curves(frame, settings, folder)
    return folder


def write_curves(frame: pd.DataFrame, settings: Mapping[str, Any], folder: Path) -> None:
    """Write config.toml, first, so that an interrupted folder is recognised; then the curves, and files.json."""
    write_text(folder / "config.toml", tomli_w.dumps(dict(settings)))
    write_text(folder / "curves.csv", to_csv(frame))
    write_text(folder / "curves.svg", drawing(curve_figure(frame)))
    write_listing(folder, CURVES)


def curve_figure(frame: pd.DataFrame) -> Figure:
    """Show what `curves` returns: accuracy parity and accuracy over demographic parity, means over seeds.

    A strategy without a setting is a single point with a dashed line at its height. The dotted line marks a demographic
    parity of 0.1, as in Yang et al. 2024.
    """
    means = frame.groupby(["strategy", "setting", "value"], dropna=False, sort=False)[list(MEASURED)].mean()
    lines = list(means.reset_index().groupby("strategy", sort=False))
    panels = []
    for metric in MEASURED[1:]:
        series = tuple(_line(str(name), place, line, metric) for place, (name, line) in enumerate(lines))
        panels.append(Panel(metric, Scale("demographic parity", guide=0.1), Scale(metric.replace("_", " ")), series))
    return Figure("curves", "What demographic parity costs, on test data", "", tuple(panels))


def _line(name: str, place: int, means: pd.DataFrame, metric: str) -> Series:
    """Return the curve of one strategy, or its single point."""
    places = zip(means["demographic_parity"], means[metric], strict=True)
    points = tuple(Point(Estimate(parity), Estimate(value)) for parity, value in places)
    return Series(name, place, points, joined=len(points) > 1, level=len(points) == 1)
