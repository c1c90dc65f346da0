"""What can be said about methods from a few seeds: spreads, paired tests between methods, the equal-cost verdict.

One-sided Wilcoxon signed-rank tests paired by seed, as in Esipova et al. 2023, corrected for the number of comparisons
by Holm 1979. Equal cost of privacy, Xu et al. 2021, section 6.1.4. With n seeds no one-sided test can go below
2^-n before correction: below five seeds nothing is significant at 5 %.
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
from simulations.results.summary import DIGITS, TAU, at_most, excessive_risks, gap, is_reference, privacy_costs

LEVEL = 0.05
"""Of significance."""

Pairs = Mapping[str, tuple[str, str]]
"""By data set, the two groups between which a gap is; where none are named, it is the largest between any two."""

_ANY: Pairs = {}

LARGER_IS_BETTER = {"accuracy": True, "loss": False, "accuracy_parity": False, "privacy_cost_gap": False,
                    "excessive_risk_gap": False}
"""The measures that are tested, and which way is better."""


class Spread(NamedTuple):
    """Mean, standard deviation (n - 1) and standard error over seeds; not a number where one seed cannot say."""

    mean: float
    deviation: float
    error: float


def spread(values: Sequence[float]) -> Spread:
    """See `Spread`."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(np.mean(values)), deviation, deviation / math.sqrt(len(values)))


def wilcoxon_less(first: Sequence[float], second: Sequence[float]) -> float:
    """The p-value of a one-sided Wilcoxon signed-rank test that `first` is smaller than `second`, paired.

    Pairs without a difference are left out; the p-value is 1 if none is left. Exact for up to 50 pairs without ties.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    differences = np.round(differences, DIGITS)
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    return float(scipy.stats.wilcoxon(differences, alternative="less").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that hold for all comparisons together (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def measures(final: pd.DataFrame, pairs: Pairs = _ANY) -> pd.DataFrame:
    """The measures of each run (see `LARGER_IS_BETTER`) from `simulations.results.summary.final_test`, a row a run."""
    return pd.DataFrame({
        "accuracy": final[ALL, "accuracy"], "loss": final[ALL, "loss"],
        "accuracy_parity": final[ALL, "accuracy_parity"],
        "privacy_cost_gap": gap(between(privacy_costs(final), pairs)),
        "excessive_risk_gap": gap(between(excessive_risks(final), pairs))})


def between(by_group: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """Values by group (one row for each run), without those of groups that are not in the pair of their data set."""
    datasets = by_group.index.get_level_values("dataset")
    left_out = [[group not in pairs.get(dataset, (group,)) for group in by_group.columns] for dataset in datasets]
    return by_group.mask(np.array(left_out, dtype=bool).reshape(by_group.shape))


def comparisons(measured: pd.DataFrame) -> pd.DataFrame:
    """Every strategy against every other, paired by seed, on each data set and measure.

    One row for each test: dataset, metric, better, worse, seeds, difference (of the means, better less worse), p,
    p_holm, comparisons. Both directions of every pair are tested, and Holm's correction is over all tests of one data
    set and measure. A reference's gaps to itself are zero by definition: there it is left out.
    """
    rows: list[dict[str, Any]] = []
    for (dataset, metric), wide in _wide(measured):
        tests = [_test(both, better, worse, LARGER_IS_BETTER[metric]) for better, worse in permutations(wide, 2)
                 if len(both := wide[[better, worse]].dropna())]
        for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
            rows.append({"dataset": dataset, "metric": metric, **test, "p_holm": adjusted, "comparisons": len(tests)})
    return pd.DataFrame(rows, columns=["dataset", "metric", "better", "worse", "seeds", "difference", "p", "p_holm",
                                       "comparisons"])


def equal_cost(measured: pd.DataFrame, tau: float = TAU) -> dict[str, bool]:
    """Whether each strategy's mean gap between the groups' privacy costs is at most tau; those without a gap left out.

    For runs on one data set.
    """
    gaps = measured["privacy_cost_gap"].groupby(level="strategy", sort=False).mean().dropna()
    return {str(name): at_most(value, tau) for name, value in gaps.items()}


def findings(measured: pd.DataFrame, tested: pd.DataFrame, pair: tuple[str, str] | None = None) -> list[str]:
    """What the statistics say about runs on one data set, whose gaps are those of `measures`, in a few sentences."""
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
    """Which differences in the privacy cost gap are more than chance, or why none can be."""
    gaps = tested[tested["metric"] == ("privacy_cost_gap" if "privacy_cost_gap" in set(tested["metric"])
                                       else "accuracy_parity")]
    if gaps.empty:
        return "No seed has a gap between groups for two methods: there are no pairs to test."
    metric, number, seeds = str(gaps["metric"].iloc[0]).replace("_", " "), len(gaps), int(gaps["seeds"].max())
    if number * 2.0**-seeds > LEVEL:
        needed = math.ceil(math.log2(number / LEVEL))
        return (f"{seeds} seed{'s' if seeds > 1 else ''} cannot tell methods apart: {number} one-sided Wilcoxon tests, "
                f"corrected by Holm, need at least {needed} for p < {LEVEL}.")
    found = gaps[gaps["p_holm"] < LEVEL]
    if found.empty:
        return f"No difference in {metric} is significant (Wilcoxon, Holm over {number} tests, {seeds} seeds)."
    pairs = "; ".join(f"{row['better']} below {row['worse']}" for row in found.to_dict("records"))
    return f"Significant in {metric} (Wilcoxon, Holm over {number} tests, {seeds} seeds): {pairs}."


def _wide(measured: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """For each data set and measure, a table of seeds by strategies, of at least two strategies that have values."""
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
    """One test that `better` is better than `worse`, over the seeds that both have."""
    sign = -1 if larger else 1
    return {"better": better, "worse": worse, "seeds": len(both),
            "difference": float((both[better] - both[worse]).mean()),
            "p": wilcoxon_less(sign * both[better].to_numpy(), sign * both[worse].to_numpy())}
