"""One table with one seed: everybody trains on the same rows and is measured on the same others."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedfair.fairness.noisy_figures import Figure
from simulations.benchmarks.tables.entrants import FIT, TRUTH, Scores, fitted, peers_on, score_of
from simulations.benchmarks.tables.made import GROUP, LABEL, Array, Made
from simulations.benchmarks.tables.scores import ALL, Truth, by_group, truth

FRESH = 200_000
"""Rows of a made table on which the truth is measured."""

GAP = 0.05
"""Largest difference of selection rates where decisions are asked to be alike."""

WITHIN = f", gap {GAP:g}"
"""What is added to the name of a classifier whose selection rates are asked to be within `GAP`."""

_KEPT = ("accuracy", "auc", "brier_score", "demographic_parity", "equal_opportunity")
_TOLD = ("accuracy", "positive_rate", "true_positive_rate", "false_positive_rate", "auc", "brier_score",
         "demographic_parity", "equal_opportunity")
_WIDEST = 0.5  # an interval wider than this tells nothing, and a fit's page says so

Row = Mapping[str, Any]
"""A line of the points: table, rows, method, epsilon, seed, the figures, seconds, and how many intervals hold."""


class Divided(NamedTuple):
    """A table with its training rows, and those on which all are measured.

    Attributes:
        name: Its name.
        own: Training rows, with `LABEL`, and `GROUP` if there are groups.
        test: The others.
        whole: Rows from which public ranges are known to the peers.
        chance: How probable "yes" is for each test row, `[n]`; None where nobody knows.
    """

    name: str
    own: pd.DataFrame
    test: pd.DataFrame
    whole: pd.DataFrame
    chance: Array | None = None


def divided_made(table: Made, seed: int, fresh: int = FRESH) -> Divided:
    """Draw a made table's training rows, and fresh ones for the truth.

    Args:
        table: The table.
        seed: What the draws follow from.
        fresh: Number of fresh rows.
    """
    own, new = table.draw(2 * seed), table.draw(2 * seed + 1, fresh)
    return Divided(table.name, own.frame, new.frame, own.frame, new.chance)


def divided_real(name: str, frame: pd.DataFrame, seed: int) -> Divided:
    """Take four fifths of a table's rows for the training.

    Args:
        name: Its name.
        frame: All rows.
        seed: What the order follows from.
    """
    order = np.random.default_rng(seed).permutation(len(frame))
    kept = len(frame) // 5
    own, test = (frame.iloc[rows].reset_index(drop=True) for rows in (order[kept:], order[:kept]))
    return Divided(name, own, test, frame)


def measured(table: Divided, seed: int, epsilons: Sequence[float], python: str = sys.executable
             ) -> tuple[list[Row], Mapping[str, str]]:
    """Return a line for each classifier and epsilon, and which peers are not at hand and why.

    Args:
        table: The table.
        seed: What all noise follows from.
        epsilons: Epsilon of each training.
        python: Python of the environment that the peers are in.
    """
    scores, absent = peers_on(table.own, table.test, table.whole, epsilons, seed, python)
    if table.chance is not None:
        scores.append(Scores(TRUTH, None, table.chance, None, 0.0))
    rows = [row for each in scores for row in _of_peer(table, each)]
    for epsilon in epsilons:
        rows += _of_fits(table, epsilon, seed)
    return [{"table": table.name, "rows": len(table.own), "seed": seed, **row} for row in rows], absent


def _of_peer(table: Divided, scores: Scores) -> Iterator[Row]:
    """Yield a peer's line, and one with thresholds by group if there are groups."""
    yield _line(scores.name, scores.epsilon, _truth(table, scores.score), scores.seconds)
    if GROUP in table.own and scores.own is not None:
        cuts = by_group(scores.own, _favourable(table.own), table.own[GROUP].to_numpy(), GAP)
        decided = scores.score > table.test[GROUP].map(cuts).fillna(0.5).to_numpy()
        yield _line(scores.name + WITHIN, scores.epsilon, _truth(table, scores.score, decided), scores.seconds)


def _of_fits(table: Divided, epsilon: float, seed: int) -> Iterator[Row]:
    """Yield the line of a fit, with how many of its intervals hold, and of one within a gap if there are groups."""
    made, seconds = fitted(table.own, epsilon, seed)
    found = _truth(table, score_of(made, table.test))
    figures = made.result.figures
    assert figures is not None
    yield {**_line(FIT, epsilon, found, seconds), **covered([figure for _, figure in figures.rows], found)}
    if GROUP in table.own:
        made, seconds = fitted(table.own, epsilon, seed, GAP)
        yield _line(FIT + WITHIN, epsilon, _truth(table, score_of(made, table.test)), seconds)


def covered(figures: Sequence[Figure], found: Truth) -> Row:
    """Count the intervals that tell anything, and those that hold the truth.

    Args:
        figures: Figures with their intervals.
        found: The truth.
    """
    told = [(figure, found[figure.group, figure.metric]) for figure in figures
            if figure.metric in _TOLD and figure.high - figure.low < _WIDEST and (figure.group, figure.metric) in found]
    return {"intervals": len(told), "hold": sum(figure.low <= value <= figure.high for figure, value in told)}


def _line(method: str, epsilon: float | None, found: Truth, seconds: float) -> Row:
    """Return a line of the points."""
    return {"method": method, "epsilon": epsilon, **{name: found[ALL, name] for name in _KEPT}, "seconds": seconds}


def _truth(table: Divided, score: Array, decided: Array | None = None) -> Truth:
    """Measure scores on the test rows; without groups, all are one."""
    group = table.test[GROUP].to_numpy() if GROUP in table.test else np.full(len(table.test), "everybody")
    return truth(score, _favourable(table.test), group, decided)


def _favourable(rows: pd.DataFrame) -> Array:
    """Return whether each row has the favourable class, `[n]`."""
    return np.asarray(rows[LABEL] == "yes")

