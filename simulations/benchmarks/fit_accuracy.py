"""How much accuracy a fit at epsilon 1 gives up: against logistic regression without privacy on the same features.

A fifth of each table is kept from the fit, and both decide it.

Run: FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.fit_accuracy [--seeds N]
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from simulations.benchmarks.first_hour import like_german_credit, like_oulad
from simulations.fitting.fit import Fitted, Wanted, fit_with_records
from simulations.results.classifier import TrainedClassifier

_ADULT = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
          "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")
_FILES = {"bank-full.csv": ("y", "marital"), "credit-card-clients.csv": ("default payment", "SEX"),
          "dutch.csv": ("occupation", "sex"), "law_school_clean.csv": ("pass_bar", "race"),
          "compas-scores-two-years.csv": ("two_year_recid", "race")}
PUBLISHED = ("adult", *_FILES)
"""Names of the published tables."""


class Named(NamedTuple):
    """A table with its label and group."""

    name: str
    frame: pd.DataFrame
    label: str
    group: str


def main() -> None:
    """Print a line for each table: both accuracies on test records, and their difference with its deviation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    logging.disable(logging.WARNING)
    print(f"{'table':30}{'records':>8}{'width':>6}{'fit':>8}{'exact':>8}{'lost':>8}{'sd':>7}{'CPU s':>7}")
    for table in tables(Path(os.environ["FEDFAIR_DATA_DIR"])):
        began = time.process_time()
        parts = [_divided(table.frame, seed) for seed in seeds]
        fits = [fit_with_records(Wanted(own, table.label, table.group, settings={"seed": seed}))
                for seed, (own, _) in zip(seeds, parts, strict=True)]
        seconds = (time.process_time() - began) / len(seeds)
        both = np.array([_accuracies(made, kept, table.label) for made, (_, kept) in zip(fits, parts, strict=True)])
        lost = both[:, 1] - both[:, 0]
        records, width = fits[0].result.data.train.x.shape
        print(f"{table.name:30}{records:8,}{width:6}{both[:, 0].mean():8.4f}{both[:, 1].mean():8.4f}{lost.mean():8.4f}"
              f"{lost.std(ddof=1):7.4f}{seconds:7.1f}", flush=True)


def _divided(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return four fifths of a table's rows, and the others."""
    order = np.random.default_rng(seed).permutation(len(frame))
    kept = len(frame) // 5
    return frame.iloc[order[kept:]].reset_index(drop=True), frame.iloc[order[:kept]].reset_index(drop=True)


def _accuracies(made: Fitted, kept: pd.DataFrame, label: str) -> tuple[float, float]:
    """Return the accuracy of a fit, and that of logistic regression on its features, on rows that were kept from it."""
    train, model = made.result.data.train, TrainedClassifier.of(made.result)
    x = model.prepared(kept.drop(columns=label))
    names = kept[label].map(lambda value: f"{value:g}" if isinstance(value, float) else str(value))  # 1.0 is class 1
    y = names.map({name: number for number, name in enumerate(train.labels)}).to_numpy()
    exact = LogisticRegression(max_iter=300, C=100).fit(train.x.numpy(), train.y.numpy())
    return float((model.predict(x) == y).mean()), float(exact.score(x, y))


def tables(folder: Path) -> Iterator[Named]:
    """Yield the six published tables, then made-up ones: as is, small, tall, wide, with 2 % positives, many categories,
    or a group of 30, and like German credit and OULAD.

    Args:
        folder: Folder of data files.
    """
    for name in PUBLISHED:
        yield published(folder, name)
    for name, records, share in (("made up", 50_000, 0.3), ("small", 5_000, 0.3), ("2 % positives", 20_000, 0.02)):
        yield Named(name, made_up(records, share), "hired", "sex")
    frame = made_up(50_000, 0.3)
    draws = np.random.default_rng(1)
    yield Named("tall", made_up(200_000, 0.3)[["n0", "n1", "c0", "sex", "hired"]], "hired", "sex")
    noise = {f"w{at}": draws.normal(size=len(frame)).round(3) for at in range(40)}
    yield Named("wide", frame.assign(**noise), "hired", "sex")
    towns = draws.zipf(1.5, len(frame)).clip(max=2_000)
    yield Named("many categories", frame.assign(town=[f"town {town}" for town in towns]), "hired", "sex")
    few = np.where(np.arange(len(frame)) < 30, "x", frame["sex"])
    yield Named("a group of 30", frame.assign(sex=few).sample(frac=1, random_state=0), "hired", "sex")
    yield Named("like German credit", like_german_credit(), "risk", "sex")
    yield Named("like OULAD", like_oulad(), "result", "gender")


def published(folder: Path, name: str) -> Named:
    """Read a published table.

    Args:
        folder: Folder of data files.
        name: One of `PUBLISHED`.
    """
    if name != PUBLISHED[0]:
        label, group = _FILES[name]
        return Named(name, pd.read_csv(folder / name, sep=None, engine="python"), label, group)
    parts = [pd.read_csv(folder / file, names=_ADULT, skipinitialspace=True, skiprows=skipped)
             for file, skipped in (("adult.data", 0), ("adult.test", 1))]
    adult = pd.concat(parts, ignore_index=True)
    return Named(name, adult.assign(income=adult["income"].str.rstrip(".")), "income", "sex")


def made_up(records: int, share: float) -> pd.DataFrame:
    """Return a table of 12 numbers and 8 categories, whose positive class has a share."""
    draws = np.random.default_rng(0)
    group, values = draws.integers(0, 2, records), draws.normal(size=(records, 12))
    values = values + 0.3 * group[:, None]
    codes = draws.integers(0, 6, (records, 8))
    score = values @ draws.normal(size=12) * 0.5 + (codes - 2.5) @ draws.normal(size=8) * 0.3 + 0.5 * group
    hired = score - np.quantile(score, 1 - share) + draws.logistic(size=records) > 0
    return pd.DataFrame({**{f"n{at}": values[:, at].round(3) for at in range(12)},
                         **{f"c{at}": [f"k{code}" for code in codes[:, at]] for at in range(8)},
                         "sex": np.where(group, "f", "m"), "hired": np.where(hired, "yes", "no")})


if __name__ == "__main__":
    main()
