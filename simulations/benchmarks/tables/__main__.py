"""Fit and its rivals on tables that no setting was chosen by.

python -m simulations.benchmarks.tables made POINTS.csv [--table NAME] [--seeds 3] [--epsilon 1] [--peers PYTHON]
FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.tables real POINTS.csv [the same]
python -m simulations.benchmarks.tables compare POINTS.csv [--epsilon 1] [--rival "DP-EBM .3/100"] [--out FILE.json]

POINTS.csv has a line for each table, seed, classifier and epsilon; those that are there are not made again, so that a
command that was stopped goes on. A fit pays for types and ranges of columns, the choice of a model and its figures.
The peers are told types, ranges and categories, which the whole table shows: an advantage for them. PYTHON is that of
an environment with the extra `interpret`; peers that are not in it are left out, and said to be.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from rich.console import Console

from simulations.benchmarks.measuring import Figures, Out, report
from simulations.benchmarks.tables import real as real_tables
from simulations.benchmarks.tables.entrants import FIT
from simulations.benchmarks.tables.made import MADE
from simulations.benchmarks.tables.measured import GAP, WITHIN, Divided, divided_made, divided_real, measured
from simulations.commands.terminal import plain_errors
from simulations.files.atomic_files import write_text

Points = Annotated[Path, typer.Argument(help="CSV file of the points; it is begun, or gone on with.")]
Tables = Annotated[list[str] | None, typer.Option("--table", help="Name of a table; all if none is named.")]
Seeds = Annotated[int, typer.Option(min=1, help="Draws of rows and noise.")]
Epsilons = Annotated[list[float] | None, typer.Option("--epsilon", help="Epsilon of a training; 1 if none is given.")]
Peers = Annotated[str, typer.Option(help="Python of the environment that the peers are in.")]

_KEY = ["table", "seed", "method", "epsilon"]


@plain_errors
def made(points: Points, table: Tables = None, seeds: Seeds = 3, epsilon: Epsilons = None,
         peers: Peers = sys.executable) -> None:
    """Measure on made tables, whose truth is that of 200,000 fresh rows."""
    _measure(points, table or [*MADE], seeds, epsilon or [1.0], peers,
             lambda name, seed: divided_made(MADE[name], seed))


@plain_errors
def real(points: Points, table: Tables = None, seeds: Seeds = 3, epsilon: Epsilons = None,
         peers: Peers = sys.executable) -> None:
    """Measure on real tables that are at hand, on a fifth of their rows."""
    names = table or [*real_tables.at_hand()]
    _measure(points, names, seeds, epsilon or [1.0], peers,
             lambda name, seed: divided_real(name, real_tables.REAL[name].load(), seed))


@contextmanager
def _quiet() -> Iterator[None]:
    """Compute with one thread, and leave out what a fit says of a table."""
    disabled, threads = logging.root.manager.disable, torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        torch.set_num_threads(threads)


@_quiet()
def _measure(points: Path, names: Sequence[str], seeds: int, epsilons: Sequence[float], python: str,
             divide: Callable[[str, int], Divided]) -> None:
    """Add the lines that are not in the file yet, one table and seed after the other."""
    known = pd.read_csv(points) if points.exists() else pd.DataFrame(columns=_KEY)
    said: set[str] = set()
    for name in names:
        for seed in range(seeds):
            mine = known[(known["table"] == name) & (known["seed"] == seed) & (known["method"] == FIT)]
            wanted = [epsilon for epsilon in epsilons if epsilon not in {*mine["epsilon"]}]
            if wanted:
                rows, absent = measured(divide(name, seed), seed, wanted, python)
                known = pd.concat([known, pd.DataFrame(rows)]).drop_duplicates(_KEY, keep="last")
                write_text(points, known.to_csv(index=False))
                typer.echo(f"{name}, seed {seed}: {len(rows)} lines")
                for peer in sorted(absent.keys() - said):
                    typer.echo(f"{peer} is not at hand ({absent[peer]}): give --peers a Python that has it")
                said |= absent.keys()


@plain_errors
def compare(points: Points, epsilon: Annotated[float, typer.Option(help="Epsilon of the private ones.")] = 1.0,
            rival: Annotated[str, typer.Option(help="With whom a fit is compared.")] = "DP-EBM .3/100",
            out: Out = None) -> None:
    """Print each classifier's means over seeds, and by how much a fit is above a rival, with standard errors."""
    lines = pd.read_csv(points)
    lines = lines[lines["epsilon"].isna() | (lines["epsilon"] == epsilon)]
    tables = [*dict.fromkeys(lines["table"])]
    methods = [name for name in dict.fromkeys(lines["method"]) if not name.endswith(WITHIN)]
    console = Console()
    for metric in ("accuracy", "auc", "brier_score", "seconds"):
        means = lines.pivot_table(index="table", columns="method", values=metric, sort=False)
        rows: list[Figures] = [{"table": name, **{method: _text(means, name, method) for method in methods}}
                               for name in tables]
        report(f"{metric} at epsilon {epsilon:g}", rows, [], _beside(out, metric))
    apart = [{"table": name, "rows": f"{int(lines[lines['table'] == name]['rows'].iloc[0]):,}",
              **{metric: _above(lines[lines["table"] == name], metric, FIT, rival)
                 for metric in ("accuracy", "auc", "brier_score")},
              **{f"accuracy within a gap of {GAP:g}": _above(lines[lines["table"] == name], "accuracy", FIT + WITHIN,
                                                           rival + WITHIN)},
              "its gap": _mean(lines[lines["table"] == name], FIT + WITHIN, "demographic_parity"),
              "the rival's": _mean(lines[lines["table"] == name], rival + WITHIN, "demographic_parity")}
             for name in tables]
    report(f"A fit at epsilon {epsilon:g} less {rival}", apart, [], out)
    fits = lines[lines["method"] == FIT]
    console.print(f"Intervals of a fit's own figures that hold the truth: {fits['hold'].sum():.0f} of "
                  f"{fits['intervals'].sum():.0f}, {fits['hold'].sum() / fits['intervals'].sum():.3f}", highlight=False)


def _beside(out: Path | None, metric: str) -> Path | None:
    """Return the name of a metric's file."""
    return None if out is None else out.with_stem(f"{out.stem}-{metric}")


def _text(means: pd.DataFrame, table: str, method: str) -> str | None:
    """Return a mean with four places."""
    value = float(means[method].get(table, float("nan"))) if method in means else float("nan")
    return None if math.isnan(value) else f"{value:.4f}"


def _mean(lines: pd.DataFrame, method: str, metric: str) -> str | None:
    """Return a method's mean over seeds with three places."""
    values = lines[lines["method"] == method][metric]
    return f"{values.mean():.3f}" if len(values) else None


def _above(lines: pd.DataFrame, metric: str, method: str, rival: str) -> str | None:
    """Return by how much one method's figure is above another's on the same rows, with its standard error."""
    values = lines.pivot_table(index="seed", columns="method", values=metric)
    if method not in values or rival not in values:
        return None
    apart = (values[method] - values[rival]).dropna()
    return f"{float(apart.mean()):+.4f} ± {float(apart.std(ddof=1)) / math.sqrt(len(apart)):.4f}"


app = typer.Typer(add_completion=False)
for _command in (made, real, compare):
    app.command()(_command)

if __name__ == "__main__":
    app()
