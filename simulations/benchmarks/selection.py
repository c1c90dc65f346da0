"""`fedfair fit` with moments alone against private selection among methods, at one epsilon: accuracy on test records.

python -m simulations.benchmarks.selection FOLDER [--table adult] [--seeds 3] [--epsilon 1] [--out FILE.json]

The folder holds adult.csv, bank.csv, compas.csv, credit.csv, dutch.csv and law.csv. Accuracies are exact, of all test
records, which no user sees: this script alone computes them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from simulations.benchmarks.report import Figures, Out, report
from simulations.commands.terminal import plain_errors
from simulations.fitting.candidates import METHODS
from simulations.fitting.fit import Fitted, Wanted, fit

TABLES = {"adult": ("income", "sex"), "bank": ("y", "marital"), "compas": ("two_year_recid", "sex"),
          "credit": ("default payment", "SEX"), "dutch": ("occupation", "sex"), "law": ("pass_bar", "male")}
"""Label and group of each table."""

_HOW = {"moments": ("moments",), "selection": tuple(METHODS)}


@plain_errors
def main(
    folder: Annotated[Path, typer.Argument(help="Folder with the tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Names of tables; all if none is named.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Splits of each table.")] = 3,
    epsilon: Annotated[float, typer.Option(min=1e-3, help="Epsilon of every record.")] = 1.0,
    out: Out = None,
) -> None:
    """Fit every table both ways, once for each split."""
    rows: list[Figures] = []
    for name in table or TABLES:
        label, group = TABLES[name]
        for how, methods in _HOW.items():
            began = time.process_time()
            fits = [fit(Wanted(folder / f"{name}.csv", label, group, epsilon, settings={"seed": seed}, methods=methods))
                    for seed in range(seeds)]
            accuracies = [accuracy(made) for made in fits]
            rows.append({"table": name, "how": how, "accuracy %": 100 * float(np.mean(accuracies)),
                         "sd %": 100 * float(np.std(accuracies, ddof=min(1, seeds - 1))),
                         "chosen": ", ".join(made.result.experiment.strategy for made in fits),
                         "CPU s": (time.process_time() - began) / seeds})
    report(f"A fit at epsilon {epsilon:g}: moments alone, and selection among {', '.join(METHODS)}", rows, [], out)


def accuracy(made: Fitted) -> float:
    """Return the exact accuracy on test records.

    Args:
        made: The fit.
    """
    test = made.result.data.test
    with torch.no_grad():
        return float((made.result.model(test.x).argmax(1) == test.y).double().mean())


if __name__ == "__main__":
    typer.run(main)
