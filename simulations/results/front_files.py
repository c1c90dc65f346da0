"""The front in a result's folder: weights and figures of classifiers that follow from the same releases as the model.

front.parquet has a row for each figure: run, point, its settings, split, group, metric, value, and the ends of its
interval if it is private. front.safetensors has the weights of all points of a run, `[points, d, C]`, under its name.
refits.safetensors has what noise does to them, where that is known (`fedfair.moments.front.Refits`), under its name
and /deviations, /draws and /changed.

Private figures in a result's folder: figures.csv has a row for each figure, calibration.csv for each curve's point.

Where records have sites, site_figures.csv has a row for each figure by site. All begin with the run's name, "" for the
only run of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from fedfair.fairness.noisy_figures import CurvePoint, CutOffFigure, Figure
from fedfair.fairness.site_figures import SiteFigure
from fedfair.moments.front import Front, Point, Refits
from fedfair.plugins.registry import unknown
from simulations.files.saved_files import save_tensors, saved_table, saved_weights, to_csv
from strategies.server.releases.front import FrontRow, MeasuredFront
from strategies.server.releases.private_figures import Figures

FRONT, WEIGHTS, REFITS = "front.parquet", "front.safetensors", "refits.safetensors"
_ONLY = "run"
"""Name of the only run of a folder, where a comparison has "strategy/seed-0"."""
FRONT_COLUMNS = ("run", *Point._fields, *FrontRow.__annotations__)
FIGURE_COLUMNS, CURVE_COLUMNS, SITE_COLUMNS, CUT_OFF_COLUMNS = (
    ("run", "split", *each._fields) for each in (Figure, CurvePoint, SiteFigure, CutOffFigure))


def save_fronts(fronts: Mapping[str, MeasuredFront], folder: Path) -> None:
    """Write the fronts of runs.

    Args:
        fronts: Fronts by the name of their run, a single one by "".
        folder: Folder to write into.
    """
    pd.concat([_table(name, made) for name, made in fronts.items()]).to_parquet(folder / FRONT, index=False)
    save_tensors({name or _ONLY: made.front.weights.contiguous() for name, made in fronts.items()}, folder / WEIGHTS)
    told = {f"{name or _ONLY}/{part}": values.float().contiguous() for name, made in fronts.items()
            if made.front.refits is not None for part, values in made.front.refits._asdict().items()
            if values is not None}
    if told:
        save_tensors(told, folder / REFITS)


def read_refits(folder: Path, run: str = "") -> Refits | None:
    """Read what noise does to the classifiers of a run's front; None where that is not known.

    Args:
        folder: Folder of a finished run or comparison.
        run: Name of the run, "" for the only run of a folder.
    """
    if not (folder / REFITS).is_file():
        return None
    with saved_weights(folder / REFITS) as saved:
        held = {part: saved.get_tensor(name).double() for part in Refits._fields
                if (name := f"{run or _ONLY}/{part}") in saved.keys()}  # noqa: SIM118 - no mapping
        return Refits(**held) if {"deviations", "draws", "changed"} <= {*held} else None


def taken(weights: Tensor, model: nn.Module) -> int:
    """Return the number of the classifier of a front that a linear model is, or that is nearest to it.

    Args:
        weights: Weights of the classifiers, `[points, d, C]`.
        model: The model.
    """
    own = next(iter(model.parameters())).detach()
    return int(torch.tensor([float((point.T - own).abs().max()) for point in weights]).argmin())


def read_front(folder: Path, run: str | None) -> tuple[str, pd.DataFrame, Tensor]:
    """Read the front of one run.

    Args:
        folder: Folder of a finished run or comparison.
        run: Run of a comparison; None if only one run has a front.

    Returns:
        The run's name, "" for the only run of a folder; the figures; and the weights `[points, d, C]`.

    Raises:
        FileNotFoundError: If the folder holds no front.
        ValueError: If several runs have one and `run` is None, or no such run has.
    """
    if not (folder / FRONT).is_file():
        raise FileNotFoundError(f"there is no {FRONT} in {folder}: only runs of methods that make a front, such as "
                                "moments, can be chosen from")
    figures = saved_table(folder / FRONT, FRONT_COLUMNS)
    names = figures["run"].unique().tolist()
    if run is None and len(names) > 1:
        raise ValueError(f"{folder} holds the fronts of several runs: choose one with --run, out of {', '.join(names)}")
    name = names[0] if run is None else run
    if name not in names:
        raise unknown("run with a front", name, names)
    with saved_weights(folder / WEIGHTS) as saved:
        weights = saved.get_tensor(name or _ONLY)
    return name, figures[figures["run"] == name], weights


def read_measured(folder: Path) -> MeasuredFront | None:
    """Return the front of a folder's only run as it was saved, or None if it has none."""
    if not (folder / FRONT).is_file():
        return None
    _, figures, weights = read_front(folder, None)
    points = tuple(settings_of(figures, point) for point in range(len(weights)))
    rows: list[FrontRow] = figures[list(FrontRow.__annotations__)].to_dict("records")  # type: ignore[assignment]
    return MeasuredFront(Front(points, weights), tuple(rows))


def settings_of(figures: pd.DataFrame, point: int) -> Point:
    """Return the settings of a point from a table of figures."""
    row = figures[figures["point"] == point].iloc[0]
    return Point(row["head"], *(float(row[name]) for name in Point._fields[1:]))


def _table(run: str, made: MeasuredFront) -> pd.DataFrame:
    """Return the figures of one run's front with the settings of each point."""
    settings: list[dict[str, Any]] = [{"run": run, "point": number, **point._asdict()}
                                      for number, point in enumerate(made.front.points)]
    return pd.DataFrame(settings).merge(pd.DataFrame(made.rows), on="point")


FIGURES, CURVES, SITES, CUT_OFFS = "figures.csv", "calibration.csv", "site_figures.csv", "cut_offs.csv"


def save_figures(figures: Mapping[str, Figures], folder: Path) -> None:
    """Write the private figures of runs.

    Args:
        figures: Figures by the name of their run.
        folder: Folder to write into.
    """
    for name, tables, columns in (
            (FIGURES, {run: of.rows for run, of in figures.items()}, FIGURE_COLUMNS),
            (CURVES, {run: of.curves for run, of in figures.items()}, CURVE_COLUMNS),
            (SITES, {run: of.sites for run, of in figures.items()}, SITE_COLUMNS),
            (CUT_OFFS, {run: of.cut_offs for run, of in figures.items()}, CUT_OFF_COLUMNS)):
        if name in (SITES, CUT_OFFS) and not any(tables.values()):
            continue
        rows = [(run, split, *row) for run, of in tables.items() for split, row in of]
        table = pd.DataFrame(rows, columns=[*columns])
        (folder / name).write_text(to_csv(table), encoding="utf-8")
