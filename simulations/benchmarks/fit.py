"""What a fit gets for its budget: by step, by method, by tau, and by the features of images.

FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.fit budget [--seeds N] [--epsilon E]
python -m simulations.benchmarks.fit selection FOLDER [--table adult] [--seeds 3] [--epsilon 1] [--out FILE.json]
python -m simulations.benchmarks.fit moments FRONTIER [--seeds N]
FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.fit images [--draws N]
FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.fit every-row [--seeds N]

`budget`: the noise of one step is that of the whole fit; all other steps are exact, so that only the last line is
private. `selection`: moments alone against private selection among methods; the folder holds adult.csv, bank.csv,
compas.csv, credit.csv, dutch.csv and law.csv. Accuracies are exact, of all test records, which no user sees: this
script alone computes them. `moments`: accuracy, gap of accuracy and demographic parity by tau at epsilon 1, from the
points of a frontier. `images`: moments on MNIST with 500 eights, by kind of features. `every-row`: what it brings that
all rows train, on rows of the same table that no fit saw.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedfair.accounting import Release, calibrate
from fedfair.datasets.features.bounded import image_features
from fedfair.datasets.grouped import PARTS, GroupedDataset
from fedfair.datasets.published.images import mnist
from fedfair.moments.heads import discriminant
from fedfair.moments.release import Moments
from fedfair.moments.sums import SENSITIVITY, moment_sums, unsvec
from simulations import Experiment
from simulations.benchmarks.fit_accuracy import Named, tables
from simulations.benchmarks.measuring import Figures, Out, report
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Fitted, Wanted, fit_with_records
from simulations.fitting.private_selection import METHODS
from simulations.results.result import Result
from strategies.server.budget_shares import PREPROCESSING_SHARE

_EXACT: Mapping[str, Any] = {"preprocessing_epsilon": 1e4, "noise_multiplier": 0.0, "figures": "exact",
                             "figures_epsilon": None}
"""Settings by which no step has noise, or hardly any."""

_STEPS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "preprocessing": ("preprocessing_epsilon",),
    "moments and steps": ("noise_multiplier",),
    "choice and figures": ("figures", "figures_epsilon"),
    "all": tuple(_EXACT),
}
"""Settings that keep the noise of a step, by its name."""


Seeds = Annotated[int, typer.Option(min=2, help="Splits of each table.")]


def budget(seeds: Seeds = 3, epsilon: float = 1.0) -> None:
    """Print the accuracy of each table's model on test records, and how far the printed accuracy is from it."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    print(f"{'table':30}{'noise of':>20}{'accuracy':>10}{'sd':>7}{'printed - exact, sd':>21}")
    for table in tables(Path(os.environ["FEDFAIR_DATA_DIR"])):
        wanted = [Wanted(table.frame, table.label, table.group, epsilon, settings={"seed": seed, "split": SPLIT})
                  for seed in range(seeds)]
        whole = [fit_with_records(each).result for each in wanted]
        for step, kept in _STEPS.items():
            figures = np.array([_accuracies(_with_noise_of(made, table.frame, kept)) for made in whole])
            apart = (figures[:, 1] - figures[:, 0]).std(ddof=1)
            print(f"{table.name:30}{step:>20}{figures[:, 0].mean():10.4f}{figures[:, 0].std(ddof=1):7.4f}"
                  f"{apart:21.4f}", flush=True)


def _with_noise_of(whole: Result, frame: Any, kept: tuple[str, ...]) -> Result:
    """Return the run of a fit, of whose steps some keep their noise."""
    plan, made = next(iter(whole.ledger.events)), whole.experiment
    assert made.target_epsilon is not None
    own = {**made.settings(), "csv": frame, "target_epsilon": None, "noise_multiplier": plan.guaranteed(0).multiplier,
           "preprocessing_epsilon": PREPROCESSING_SHARE * made.target_epsilon}
    exact = {name: value for name, value in _EXACT.items() if name not in kept}
    return run(Experiment(**{**own, **exact}))


def _accuracies(made: Result) -> tuple[float, float]:
    """Return the accuracy of a model on test records, and the one that is printed."""
    test = made.data.test
    with torch.no_grad():
        right = float((made.model(test.x).argmax(1) == test.y).double().mean())
    last = made.metrics[made.metrics["round"] == made.metrics["round"].max()]
    rows = last[(last["split"] == "test") & (last["group"] == "all")]
    return right, float(rows.set_index("metric")["value"]["accuracy"])


TABLES = {"adult": ("income", "sex"), "bank": ("y", "marital"), "compas": ("two_year_recid", "sex"),
          "credit": ("default payment", "SEX"), "dutch": ("occupation", "sex"), "law": ("pass_bar", "male")}
"""Label and group of each table."""

SPLIT = (0.7, 0.1, 0.2)
"""Parts of each table: on the last the accuracy is counted."""

_HOW = {"moments": ("moments",), "selection": tuple(METHODS)}


@plain_errors
def selection(
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
            wanted = [Wanted(folder / f"{name}.csv", label, group, epsilon, methods=methods,
                             settings={"seed": seed, "split": SPLIT})
                      for seed in range(seeds)]
            fits = [*map(fit_with_records, wanted)]
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


_METHODS = ("moments", "moments, group known")
_HEADS = {"least squares": 0, "logistic": "auto"}  # with the number of steps that each is measured at
_TAUS = ("", ", tau 0.3", ", tau 0", ", tau -0.1")
_MEASURES = ["accuracy", "accuracy_parity", "demographic_parity"]


def moments(frontier: Annotated[Path, typer.Argument(help="Folder that `fedfair reproduce frontier` wrote.")],
            seeds: Annotated[int, typer.Option(min=1)] = 5) -> None:
    """Print a line for each method, table and head: the measures at each tau, means over the first seeds."""
    points = pd.read_csv(frontier / "points.csv")
    points = points[(points["split"] == "test") & points["method"].isin(_METHODS) & (points["epsilon"] == 1)
                    & (points["seed"] < seeds) & points["demographic_parity"].notna()]
    means = points.groupby(["method", "dataset", "setting"])[_MEASURES].mean()
    print(f"{'method':22}{'table':8}{'head':15}" + "".join(f"{name:18}" for name in ("tau 1", "tau .3", "tau 0",
                                                                                   "tau -.1")))
    for method in _METHODS:
        for dataset in points["dataset"].unique():
            for head, steps in _HEADS.items():
                settings: list[Any] = [(method, dataset, f"{head}{tau}; logistic_steps {steps}, floor 1")
                                       for tau in _TAUS]
                cells = ["/".join(f"{value:.3f}" for value in means.loc[at]) for at in settings]
                print(f"{method:22}{dataset:8}{head:15}" + "".join(f"{cell:18}" for cell in cells))


_EPSILONS, _DELTA = (6.0, 1.0, 0.5, 0.2), 1e-6
_RARE, _KEPT = 8, 500


def images(draws: Annotated[int, typer.Option(min=2)] = 5) -> None:
    """Print accuracy, accuracy of class 8, and of the worst class, means over draws of records and noise."""
    torch.set_num_threads(1)
    data = mnist()
    for kind in ("filters", "handwriting"):
        features = image_features(data.x, kind).double()
        for epsilon in _EPSILONS:
            sigma = SENSITIVITY * calibrate(lambda m: {Release(1.0, m): 1}, epsilon, _DELTA, "pld")
            figures = np.array([_figures(features, data, sigma, draw) for draw in range(draws)])
            means, spread = figures.mean(0), figures.std(0, ddof=1)
            told = ", ".join(f"{mean:.3f} ({sd:.3f})" for mean, sd in zip(means, spread, strict=True))
            print(f"{kind:12} epsilon {epsilon:3}: {told}", flush=True)


def _figures(features: Tensor, data: GroupedDataset, sigma: float, draw: int) -> tuple[float, float, float]:
    """Return the figures of one draw of records and noise."""
    generator = torch.Generator().manual_seed(draw)
    train = data.published == PARTS.index("train")
    rare = torch.nonzero(train & (data.y == _RARE))[:, 0]
    kept = train.clone()
    kept[rare[torch.randperm(len(rare), generator=generator)[_KEPT:]]] = False
    x, y = features[kept], data.y[kept]
    sums = moment_sums(x, y, torch.zeros_like(y), 1, 10, by_group=False)
    second, first = (value + sigma * torch.randn(value.shape, generator=generator, dtype=value.dtype)
                     for value in (sums["second"], sums["first"]))
    head = discriminant(Moments(unsvec(second), first, sigma, float(x[0, -1])).pooled())
    right = ((features[~train] @ head.weights).argmax(1) == data.y[~train]).double()
    by_class = [float(right[data.y[~train] == one].mean()) for one in range(10)]
    return float(right.mean()), by_class[_RARE], min(by_class)


_NUMBERS = (1_000, 3_000, 10_000, 30_000)
_MOST = 20_000  # rows that decide


def every_row(seeds: Seeds = 8, epsilon: float = 1.0) -> None:
    """Print accuracy and AUC of fits that hold rows out, and of fits on all rows, for some numbers of rows."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    print(f"{'table':30}{'rows':>8}{'held out':>16}{'all':>16}{'difference':>18}{'s.e.':>16}")
    for table in tables(Path(os.environ["FEDFAIR_DATA_DIR"])):
        for number in _NUMBERS:
            if 1.1 * number <= len(table.frame):
                found = np.array([[_on_others(table, number, seed, epsilon, split) for split in (SPLIT, None)]
                                  for seed in range(seeds)])
                apart = found[:, 1] - found[:, 0]
                means = [*found.mean(0), apart.mean(0), apart.std(0, ddof=1) / np.sqrt(seeds)]
                print(f"{table.name:30}{number:8,}" + "".join(f"{right:11.4f} {auc:.4f}" for right, auc in means),
                      flush=True)


def _on_others(table: Named, number: int, seed: int, epsilon: float, split: tuple[float, float, float] | None
               ) -> tuple[float, float]:
    """Return accuracy and AUC of a fit to as many rows of a table, on others."""
    frame = table.frame.sample(frac=1, random_state=seed)
    own, others = frame.iloc[:number], frame.iloc[number:number + _MOST]
    favourable = max(table.frame[table.label].unique())
    made = FairPrivateClassifier(epsilon, split=split, random_state=seed).fit(
        own.drop(columns=table.label), own[table.label] == favourable, sensitive_features=own[table.group])
    stated = made.predict_proba(others.drop(columns=table.label))[:, 1]
    truth = others[table.label] == favourable
    return float(((stated > 0.5) == truth).mean()), float(roc_auc_score(truth, stated))


app = typer.Typer(add_completion=False)
for _command in (budget, selection, moments, images, every_row):
    app.command()(_command)

if __name__ == "__main__":
    app()
