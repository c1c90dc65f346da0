"""Paired tests between methods, over seeds.

One-sided Wilcoxon signed-rank tests paired by seed, as in Esipova et al. 2023, corrected for the number of comparisons
by Holm 1979. With n seeds no one-sided test can go below 2^-n before correction: below five seeds nothing is
significant at 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import scipy

from simulations.results.measures import LARGER_IS_BETTER
from simulations.results.reference import is_reference
from simulations.results.summary import DIGITS


def wilcoxon_less(first: Sequence[float], second: Sequence[float]) -> float:
    """Test whether `first` is smaller than `second`, by a one-sided Wilcoxon signed-rank test on pairs.

    Pairs without a difference are left out. Exact for up to 50 pairs without ties.

    Args:
        first: Values that may be smaller, `[n]`.
        second: Their partners, `[n]`.

    Returns:
        The p-value; 1 if no pair differs.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    differences = np.round(differences, DIGITS)
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    return float(scipy.stats.wilcoxon(differences, alternative="less").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that they hold for all comparisons together (Holm 1979).

    Args:
        p_values: P-values of the single comparisons.

    Returns:
        Adjusted p-values, in the order given.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for smaller, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - smaller) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def comparisons(measured: pd.DataFrame) -> pd.DataFrame:
    """Test every strategy against every other, paired by seed, on each data set and measure.

    Both directions of every pair are tested, and Holm's correction is over all tests of one data set and measure. A
    reference's gaps to itself are zero by definition, so these tests leave it out.

    Args:
        measured: Measures of each run, from `measures`.

    Returns:
        A row for each test: dataset, metric, better, worse, seeds, difference (of the means, better less worse), p,
            p_holm, comparisons.
    """
    rows: list[dict[str, Any]] = []
    for (dataset, metric), wide in _wide(measured):
        tests = []
        for better, worse in permutations(wide, 2):
            both = wide[[better, worse]].dropna()
            if len(both):
                tests.append(_test(both, better, worse, LARGER_IS_BETTER[metric]))
        for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
            rows.append({"dataset": dataset, "metric": metric, **test, "p_holm": adjusted, "comparisons": len(tests)})
    return pd.DataFrame(rows, columns=["dataset", "metric", "better", "worse", "seeds", "difference", "p", "p_holm",
                                       "comparisons"])


def _wide(measured: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Make, for each data set and measure, a table of seeds by strategies, if two or more strategies have values."""
    tables = []
    for dataset, runs in measured.groupby(level="dataset", sort=False):
        for metric in LARGER_IS_BETTER:
            wide = runs[metric].droplevel("dataset").unstack("strategy")
            wide = wide[[name for name in runs.index.get_level_values("strategy").unique()
                         if not (is_reference(name) and metric.endswith("_gap"))]]
            wide = wide.dropna(axis=1, how="all")
            if wide.shape[1] > 1:
                tables.append(((str(dataset), metric), wide))
    return tables


def _test(both: pd.DataFrame, better: Any, worse: Any, larger: bool) -> dict[str, Any]:
    """Test once whether `better` is better than `worse`, over the seeds that both have."""
    sign = -1 if larger else 1
    return {"better": better, "worse": worse, "seeds": len(both),
            "difference": float((both[better] - both[worse]).mean()),
            "p": wilcoxon_less(sign * both[better].to_numpy(), sign * both[worse].to_numpy())}
