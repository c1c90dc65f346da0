"""What a few seeds tell about methods: spreads, paired tests between methods, the equal-cost verdict.

One-sided Wilcoxon signed-rank tests paired by seed, as in Esipova et al. 2023, corrected for the number of comparisons
by Holm 1979. Equal cost of privacy, Xu et al. 2021, section 6.1.4. With n seeds no one-sided test can go below 2^-n
before correction: below five seeds nothing is significant at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy

from fedfair.fairness.metrics import ALL
from simulations.results.reference import excessive_risks, is_reference, privacy_costs
from simulations.results.summary import DIGITS, TAU, at_most, gap

LEVEL = 0.05
"""Level of significance."""

Pairs = Mapping[str, tuple[str, str]]
"""By data set, the two groups between which gaps are measured; otherwise a gap is the largest between any two."""

_ANY: Pairs = {}

LARGER_IS_BETTER = {"accuracy": True, "loss": False, "accuracy_parity": False, "privacy_cost_gap": False,
                    "excessive_risk_gap": False}
"""The tested measures, and whether larger values are better."""


class Spread(NamedTuple):
    """How values spread over seeds.

    Attributes:
        mean: Mean.
        deviation: Standard deviation (n - 1); not a number for one seed.
        error: Standard error of the mean; not a number for one seed.
    """

    mean: float
    deviation: float
    error: float


def spread(values: Sequence[float]) -> Spread:
    """Compute the `Spread` of values.

    Args:
        values: One value for each seed, at least one.

    Returns:
        Mean, standard deviation and standard error.
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(np.mean(values)), deviation, deviation / math.sqrt(len(values)))


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


def measures(final: pd.DataFrame, pairs: Pairs = _ANY) -> pd.DataFrame:
    """Compute the measures of each run (see `LARGER_IS_BETTER`).

    Args:
        final: Final metrics, a row for each run, from `simulations.results.summary.final_test`.
        pairs: Groups between which gaps are measured; by default any two.

    Returns:
        A row for each run, with a column for each measure.
    """
    return pd.DataFrame({
        "accuracy": final[ALL, "accuracy"], "loss": final[ALL, "loss"],
        "accuracy_parity": final[ALL, "accuracy_parity"],
        "privacy_cost_gap": gap(between(privacy_costs(final), pairs)),
        "excessive_risk_gap": gap(between(excessive_risks(final), pairs))})


def between(by_group: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """Mask the values of groups that are not in the pair of their data set.

    Args:
        by_group: Values with a row for each run and a column for each group.
        pairs: Two groups by data set; other data sets keep all groups.

    Returns:
        The same table, not a number in the masked cells.
    """
    datasets = by_group.index.get_level_values("dataset")
    left_out = [[group not in pairs.get(dataset, (group,)) for group in by_group.columns] for dataset in datasets]
    return by_group.mask(np.array(left_out, dtype=bool).reshape(by_group.shape))


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


def equal_cost(measured: pd.DataFrame, tau: float = TAU) -> dict[str, bool]:
    """Judge whether each strategy's mean gap between the groups' privacy costs is at most tau.

    Args:
        measured: Measures of runs on one data set, from `measures`.
        tau: Largest gap that counts as equal, a difference of accuracies.

    Returns:
        The verdict by strategy; strategies without a gap are left out.
    """
    gaps = measured["privacy_cost_gap"].groupby(level="strategy", sort=False).mean().dropna()
    return {str(name): at_most(value, tau) for name, value in gaps.items()}


def findings(measured: pd.DataFrame, tested: pd.DataFrame, pair: tuple[str, str] | None = None) -> list[str]:
    """Sum up the statistics of runs on one data set.

    Args:
        measured: Measures of the runs, from `measures`.
        tested: Their tests, from `comparisons`.
        pair: Names of the two groups between which the gaps are; None if they are between any two.

    Returns:
        Sentences, for people.
    """
    verdicts = {name: fair for name, fair in equal_cost(measured).items() if not is_reference(name)}
    lines, of = [], f" between {' and '.join(pair)}" if pair else ""
    for fair, text in ((True, f"Equal cost of privacy (mean gap{of} at most {TAU}): "),
                       (False, f"Unequal cost of privacy (mean gap{of} above {TAU}): ")):
        if names := [name for name, verdict in verdicts.items() if verdict is fair]:
            lines.append(text + ", ".join(names) + ".")
    seeds = measured.index.get_level_values("seed").nunique()
    if measured.index.get_level_values("strategy").nunique() > 1 and seeds > 1:
        lines.append(_significance(tested))
    return lines


def _significance(tested: pd.DataFrame) -> str:
    """Say which differences in the privacy cost gap are significant, or why none can be."""
    gaps = tested[tested["metric"] == ("privacy_cost_gap" if "privacy_cost_gap" in set(tested["metric"])
                                       else "accuracy_parity")]
    if gaps.empty:
        return "No seed has a gap between groups for two methods: there are no pairs to test."
    metric, number, seeds = str(gaps["metric"].iloc[0]).replace("_", " "), len(gaps), int(gaps["seeds"].max())
    if number * 2.0**-seeds > LEVEL:
        needed = math.ceil(math.log2(number / LEVEL))
        return (f"{seeds} seed{'s' if seeds > 1 else ''} cannot tell methods apart: {number} one-sided Wilcoxon tests, "
                f"corrected by Holm, need at least {needed} for p < {LEVEL}.")
    significant = gaps[gaps["p_holm"] < LEVEL]
    if significant.empty:
        return f"No difference in {metric} is significant (Wilcoxon, Holm over {number} tests, {seeds} seeds)."
    pairs = "; ".join(f"{row['better']} below {row['worse']}" for row in significant.to_dict("records"))
    return f"Significant in {metric} (Wilcoxon, Holm over {number} tests, {seeds} seeds): {pairs}."


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
