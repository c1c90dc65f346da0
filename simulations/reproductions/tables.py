"""Published tables and figures, run again and set beside the paper cell by cell: `fedfair reproduce NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure
from simulations.drawing.paper import needs_matplotlib, save_figure
from simulations.files.atomic_files import write_json, write_text
from simulations.files.csv_text import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions import markdown
from simulations.reproductions.cells import Statistics, claim_tests, compared, reported, strategy_name, values
from simulations.reproductions.drawings import drawn
from simulations.reproductions.page_runs import Kept, kept_runs, versions
from simulations.reproductions.published import PUBLISHED, Planned, Published, load, plan
from simulations.reproductions.request import EVERYTHING, Request
from simulations.results.environment import environment
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons, findings


def reproduce(name: str, out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
              folder: Path = PUBLISHED) -> pd.DataFrame:
    """Run a published table, `jobs` runs at a time, write it to `out`, and return the cells (see `cells.compared`).

    `out` gets README.md, environment.json and the figures, and cells.csv and statistics.csv where the paper has
    numbers. The runs are kept, so that an interrupted reproduction, or one with more seeds or data sets, goes on where
    it was. Raises `ValueError` for an unknown name, of a table or a data set, or where figures cannot be drawn,
    `FileExistsError` if the folder holds something else, another `OSError` if it or that of the runs cannot be written,
    and what `kept_runs` raises.
    """
    published, cells = load(name, folder)
    if published.figures:
        needs_matplotlib()
    planned = plan(published, request)
    folder_of_runs = request.begin(name, out)
    runs = kept_runs([run.experiment for run in planned], folder_of_runs, on_round, jobs)
    metrics = _metrics(published, planned, runs)
    figures = list(drawn(published, planned, runs)) if planned else []
    for figure in figures:
        _save(figure, out)
    for table in ("cells.csv", "statistics.csv"):
        (out / table).unlink(missing_ok=True)  # of an earlier reproduction that had more to compare
    statistics = _statistics(published, metrics, out) if len(cells) and planned else Statistics()
    cells = compared(published, cells, values(metrics, published.pairs, published.losses) if planned else {})
    if len(cells):
        write_text(out / "cells.csv", to_csv(cells))
    write_json(out / "environment.json", environment([run.experiment for run in planned]))
    write_text(out / "README.md", markdown.report(
        name, published, cells, figures, statistics, request, versions(folder_of_runs, [e for _, _, e in planned])))
    return cells


def _statistics(published: Published, metrics: pd.DataFrame, out: Path) -> Statistics:
    """Write every test to statistics.csv, and return the results."""
    measured = measures(reported(metrics, published.losses), published.pairs)
    every = comparisons(measured)
    write_text(out / "statistics.csv", to_csv(every))
    return Statistics(claim_tests(published, every), {
        str(dataset): findings(rows, every[every["dataset"] == dataset], published.pairs.get(str(dataset)))
        for dataset, rows in measured.groupby(level="dataset", sort=False)})


def _save(figure: Figure, out: Path) -> None:
    """Save a figure, and its numbers as CSV."""
    save_figure(figure, out)
    table = figure.table()
    rows = pd.DataFrame(table.rows, columns=list(table.columns))
    write_text(out / f"{figure.name}.csv", to_csv(rows))


def _metrics(published: Published, planned: Sequence[Planned], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return the metrics of all runs under the paper's names, with epsilon as one more metric of the test part."""
    frames = []
    for (dataset, method, experiment), run in zip(planned, runs, strict=True):
        last = {"round": run.metrics["round"].max(), "split": "test", "group": ALL, "metric": "epsilon",
                "value": run.ledger.epsilon(accountant=published.accountant)}
        frame = pd.concat([run.metrics, pd.DataFrame([last])], ignore_index=True)
        frames.append(frame.assign(dataset=dataset, strategy=strategy_name(published, method), seed=experiment.seed))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
