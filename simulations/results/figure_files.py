"""Private figures in a result's folder: figures.csv has a row for each figure, calibration.csv for each curve's point.

Where records have sites, site_figures.csv has a row for each figure by site. All begin with the run's name, "" for the
only run of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedfair.fairness.noisy_figures import CurvePoint, Figure
from fedfair.fairness.site_figures import SiteFigure
from simulations.results.csv_text import to_csv
from strategies.server.private_figures import Figures

FIGURES, CURVES, SITES = "figures.csv", "calibration.csv", "site_figures.csv"


def save_figures(figures: Mapping[str, Figures], folder: Path) -> None:
    """Write the private figures of runs.

    Args:
        figures: Figures by the name of their run.
        folder: Folder to write into.
    """
    for name, tables, fields in (
            (FIGURES, {run: of.rows for run, of in figures.items()}, Figure._fields),
            (CURVES, {run: of.curves for run, of in figures.items()}, CurvePoint._fields),
            (SITES, {run: of.sites for run, of in figures.items()}, SiteFigure._fields)):
        if name == SITES and not any(tables.values()):
            continue
        rows = [(run, split, *row) for run, of in tables.items() for split, row in of]
        table = pd.DataFrame(rows, columns=["run", "split", *fields])
        (folder / name).write_text(to_csv(table), encoding="utf-8")
