"""What scores are worth on rows that a classifier has not seen: accuracy, area, Brier score, gaps between groups."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.metrics import roc_auc_score

from simulations.benchmarks.tables.made import Array

ALL, FEWEST = "all", 30
"""All groups together; a group of fewer test rows is in no gap."""

Truth = Mapping[tuple[str, str], float]
"""Values by group and metric, with the names of `fedfair.fairness.noisy_figures`."""


def truth(score: Array, y: Array, group: Array, decided: Array | None = None) -> Truth:
    """Measure a classifier.

    Args:
        score: Stated probability of the favourable class, `[n]`.
        y: Whether each row has it, `[n]`.
        group: Name of each row's group, `[n]`.
        decided: Whether each row is decided for it, `[n]`; None where the score is above a half.

    Examples:
        >>> score, y = np.array([0.9, 0.2, 0.6, 0.4]), np.array([True, False, False, False])
        >>> found = truth(score, y, np.array(["a", "a", "b", "b"]))
        >>> found["all", "accuracy"], found["all", "auc"], round(found["all", "brier_score"], 4)
        (0.75, 1.0, 0.1425)
    """
    decided = score > 0.5 if decided is None else decided
    names = [ALL, *np.unique(group)]
    found = {name: _rates(score[rows], y[rows], decided[rows])
             for name in names for rows in [np.ones(len(y), bool) if name == ALL else group == name]}
    large = [rates for name, rates in found.items() if name != ALL and (group == name).sum() >= FEWEST]
    gaps = {gap: _gap([rates[rate] for rates in large]) for gap, rate in
            (("demographic_parity", "positive_rate"), ("equal_opportunity", "true_positive_rate"),
             ("accuracy_parity", "accuracy"))}
    values = {(name, metric): value for name, rates in found.items() for metric, value in rates.items()}
    return {**values, **{(ALL, gap): value for gap, value in gaps.items()}}


def _rates(score: Array, y: Array, decided: Array) -> dict[str, float]:
    """Return the figures of some rows; NaN for what they cannot tell."""
    both = bool(y.any() and not y.all())
    return {"accuracy": float((decided == y).mean()), "positive_rate": float(decided.mean()),
            "true_positive_rate": _mean(decided[y]), "false_positive_rate": _mean(decided[~y]),
            "precision": _mean(y[decided]), "auc": float(roc_auc_score(y, score)) if both else np.nan,
            "brier_score": float(((score - y) ** 2).mean())}


def _mean(values: Array) -> float:
    """Return the mean, NaN of nothing."""
    return float(values.mean()) if len(values) else np.nan


def _gap(rates: list[float]) -> float:
    """Return the largest difference of rates; NaN of fewer than two."""
    return max(rates) - min(rates) if len(rates) > 1 else np.nan


def by_group(score: Array, y: Array, group: Array, gap: float) -> dict[str, float]:
    """Return each group's threshold with which most rows are decided rightly, and selection rates are within a gap.

    It is exact on the rows that it is given and costs no privacy in this benchmark: an advantage for who takes it.

    Args:
        score: Stated probability, `[n]`.
        y: Whether each row has the favourable class, `[n]`.
        group: Name of each row's group, `[n]`.
        gap: The most that selection rates may differ.

    Examples:
        >>> score, y = np.array([0.9, 0.8, 0.3, 0.2]), np.array([True, True, False, True])
        >>> by_group(score, y, np.array(["a", "a", "b", "b"]), 0.0)
        {'a': 0.0, 'b': 0.0}
    """
    names = [*np.unique(group)]
    right = {name: _right_by_number(score[group == name], y[group == name]) for name in names}
    least = np.linspace(0, 1, 201)
    best = {name: [_best(right[name], low, min(low + gap, 1.0)) for low in least] for name in names}
    total = np.sum([[right[name][number] for number in best[name]] for name in names], axis=0)
    chosen = int(total.argmax())
    return {str(name): _between(np.sort(score[group == name])[::-1], best[name][chosen]) for name in names}


def _right_by_number(score: Array, y: Array) -> Array:
    """Return how many rows are decided rightly if the 0, 1, ..., n of highest scores are decided for, `[n + 1]`."""
    ordered = y[np.argsort(-score, kind="stable")]
    gained = np.concatenate([[0], np.cumsum(np.where(ordered, 1, -1))])
    return np.asarray(gained + (~ordered).sum())


def _best(right: Array, low: float, high: float) -> int:
    """Return the number of rows to be decided for, out of those whose share is from `low` to `high` about."""
    first, last = round(low * (len(right) - 1)), round(high * (len(right) - 1))
    return first + int(right[first:last + 1].argmax())


def _between(descending: Array, number: int) -> float:
    """Return a threshold above which as many scores are."""
    bounded = np.concatenate([[1.0], descending, [0.0]])
    return float((bounded[number] + bounded[number + 1]) / 2) if number < len(descending) else 0.0
