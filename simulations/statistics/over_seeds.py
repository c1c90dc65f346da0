"""What a few seeds tell about methods: spreads, the equal-cost verdict, and all of it in sentences.

Equal cost of privacy: Xu et al. 2021, section 6.1.4.

Paired tests between methods, over seeds.

One-sided Wilcoxon signed-rank tests paired by seed, as in Esipova et al. 2023, corrected for the number of comparisons
by Holm 1979. With n seeds no one-sided test can go below 2^-n before correction: below five seeds nothing is
significant at 5 %.

Examples:
    >>> names = ["dataset", "strategy", "seed"]
    >>> runs = pd.MultiIndex.from_product([["adult"], ["dpsgd", "dpsgd-f"], range(5)], names=names)
    >>> gaps = [0.07, 0.08, 0.09, 0.08, 0.09, 0.02, 0.03, 0.01, 0.02, 0.02]
    >>> measured = pd.DataFrame({"privacy_cost_gap": gaps, "accuracy": 0.8, "majority_rate": 0.8}, runs)
    >>> equal_cost(measured), constant_runs(measured.assign(constant=measured["privacy_cost_gap"] < 0.02))
    ({'dpsgd': False, 'dpsgd-f': True}, {'dpsgd-f': (1, 5)})
    >>> constant_models(measured)
    ['On average no more accurate than always predicting the majority class (0.800): dpsgd, dpsgd-f.']
    >>> tested = comparisons(measured[["privacy_cost_gap"]])
    >>> tested[["better", "worse", "difference", "p_holm"]].round(4)
        better    worse  difference  p_holm
    0    dpsgd  dpsgd-f       0.062  1.0000
    1  dpsgd-f    dpsgd      -0.062  0.0625
    >>> for sentence in findings(measured, tested)[1:]:
    ...     print(sentence)
    Equal cost of privacy (mean gap, and its 95 % interval over seeds, at most 0.05): dpsgd-f.
    Unequal cost of privacy (mean gap, and its 95 % interval over seeds, above 0.05): dpsgd.
    5 seeds cannot tell methods apart: 2 one-sided Wilcoxon tests, corrected by Holm, need at least 6 for p < 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import find, shown_in
from simulations.statistics.summary import DIGITS, TAU, at_most, is_reference, reference

LEVEL = 0.05
"""Level of significance."""

ROUNDING = 10.0**-DIGITS
"""Slack within which a gap of tau is at most tau."""


class Spread(NamedTuple):
    """How values spread over seeds.

    Attributes:
        mean: Mean.
        deviation: Standard deviation (n - 1); not a number for one seed.
        error: Standard error of the mean; not a number for one seed.

    Examples:
        >>> spread([0.8])
        Spread(mean=0.8, deviation=nan, error=nan)
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

    Examples:
        >>> mean, deviation, error = spread([0.78, 0.80, 0.82, 0.80])
        >>> round(mean, 3), round(deviation, 3), round(error, 3)
        (0.8, 0.016, 0.008)
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(np.mean(values)), deviation, deviation / math.sqrt(len(values)))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of Student's 95 % interval of the mean of independent runs; not numbers for fewer than two.

    Args:
        values: One value for each seed, at least one.

    Examples:
        >>> low, high = interval([0.78, 0.80, 0.82, 0.80])
        >>> round(low, 3), round(high, 3), interval([0.8])
        (0.774, 0.826, (nan, nan))
    """
    mean, deviation, _ = spread(values)
    if math.isnan(deviation):
        return math.nan, math.nan
    half = float(scipy.stats.t.ppf(1 - LEVEL / 2, len(values) - 1) * deviation / math.sqrt(len(values)))
    return mean - half, mean + half


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
    """
    lines = [*constant_models(measured), *_costs(measured, f" between {' and '.join(pair)}" if pair else "")]
    seeds = measured.index.get_level_values("seed").nunique()
    if measured.index.get_level_values("strategy").nunique() > 1 and seeds > 1:
        lines.append(_significance(tested))
    return lines


def constant_runs(measured: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Count the runs of each strategy that predict one class alone, and all its runs.

    Args:
        measured: Measures of runs on one data set, from `measures`.

    Returns:
        Both numbers by strategy, for those with such runs.
    """
    if "constant" not in measured:
        return {}
    by_strategy = measured["constant"].groupby(level="strategy", sort=False)
    return {str(name): (int(runs.sum()), len(runs)) for name, runs in by_strategy if runs.any()}


def constant_models(measured: pd.DataFrame) -> list[str]:
    """Say which methods predict one class alone, and which are no more accurate than that.

    Args:
        measured: Measures of runs on one data set, from `measures`.
    """
    lines, constant = [], constant_runs(measured)
    for name, (runs, of) in constant.items():
        what = ("no difference from it is a cost of privacy" if is_reference(name) else
                "its gaps are small because it tells nobody apart")
        lines.append(f"{name} predicts one class for every test record in {runs} of {of} seed{'s' * (of > 1)}: {what}.")
    if "majority_rate" not in measured:
        return lines
    means = measured[["accuracy", "majority_rate"]].groupby(level="strategy", sort=False).mean()
    weak = [str(name) for name, row in means.iterrows() if name not in constant
            and round(row["accuracy"] - row["majority_rate"], DIGITS) <= 0]
    if weak:
        lines.append("On average no more accurate than always predicting the majority class "
                     f"({means['majority_rate'].iloc[0]:.3f}): {', '.join(weak)}.")
    return lines


def _costs(measured: pd.DataFrame, of: str) -> list[str]:
    """Say of which methods the seeds tell that the cost of privacy is equal, or unequal, and of which they do not.

    Methods that predict one class alone are left out, and those whose reference does.
    """
    constant, strategies = constant_runs(measured), measured.index.unique("strategy")
    said: dict[str, list[str]] = {"equal": [], "unequal": [], "unknown": []}
    for name, gaps in measured["privacy_cost_gap"].dropna().groupby(level="strategy", sort=False):
        if is_reference(str(name)) or {str(name), reference(str(name), strategies)} & set(constant):
            continue
        low, high = interval(list(gaps))
        kind = "equal" if high <= TAU + ROUNDING else "unequal" if low > TAU else "unknown"
        ends = f", {max(low, 0):.3f} to {high:.3f}" if len(gaps) > 1 else ""
        said[kind].append(str(name) if kind != "unknown" else f"{name} ({gaps.mean():.3f}{ends})")
    mean = f"mean gap{of}, and its 95 % interval over seeds,"
    heads = {"equal": f"Equal cost of privacy ({mean} at most {TAU})",
             "unequal": f"Unequal cost of privacy ({mean} above {TAU})",
             "unknown": f"Not told by the seeds whether the mean gap{of} in the cost of privacy is at most {TAU}"}
    return [f"{heads[kind]}: {', '.join(names)}." for kind, names in said.items() if names]


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


def wilcoxon_less(first: Sequence[float], second: Sequence[float]) -> float:
    """Test whether `first` is smaller than `second`, by a one-sided Wilcoxon signed-rank test on pairs.

    Pairs without a difference are left out. Exact for up to 50 pairs without ties.

    Args:
        first: Values that may be smaller, `[n]`.
        second: Their partners, `[n]`.

    Returns:
        The p-value; 1 if no pair differs.

    Examples:
        >>> wilcoxon_less([0.1, 0.2, 0.1, 0.3, 0.2], [0.3, 0.5, 0.5, 0.8, 0.8])
        0.03125
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

    Examples:
        >>> holm([0.01, 0.04, 0.5])
        [0.03, 0.08, 0.5]
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
                tests.append(_test(both, better, worse, bool(find(metric).larger_is_better)))
        for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
            rows.append({"dataset": dataset, "metric": metric, **test, "p_holm": adjusted, "comparisons": len(tests)})
    return pd.DataFrame(rows, columns=["dataset", "metric", "better", "worse", "seeds", "difference", "p", "p_holm",
                                       "comparisons"])


def _wide(measured: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Make, for each data set and measure, a table of seeds by strategies, if two or more strategies have values."""
    tables = []
    for dataset, runs in measured.groupby(level="dataset", sort=False):
        for metric in (each.name for each in shown_in("tests") if each.name in runs):
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


def over_seeds(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """Return the mean of independent runs with Student's 95 % interval; without ends for fewer than two runs.

    The interval is cut to `least` and `most`, the values between which the mean must lie.
    """
    numbers = np.array([value for value in values if not math.isnan(value)], dtype=float)
    if len(numbers) == 0:
        return Estimate(math.nan)
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Estimate(mean)
    low, high = interval(list(numbers))
    return Estimate(mean, max(low, least), min(high, most))


def share_over_seeds(values: Sequence[float]) -> Estimate:
    """Return `over_seeds` of shares, which lie between 0 and 1."""
    return over_seeds(values, 0.0, 1.0)


def of_records(share: float, records: float) -> Estimate:
    """Return a share of test records with Wilson's 95 % score interval (Wilson 1927), for other records of one run."""
    if not records or math.isnan(share):
        return Estimate(share)
    z = float(scipy.stats.norm.ppf(1 - LEVEL / 2))
    middle = (share + z**2 / (2 * records)) / (1 + z**2 / records)
    half = z * math.sqrt(share * (1 - share) / records + z**2 / (4 * records**2)) / (1 + z**2 / records)
    # an end that equals the share, at 0 or 1, must not lie on its other side after rounding
    return Estimate(share, min(share, middle - half), max(share, middle + half))
