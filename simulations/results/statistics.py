"""What a few seeds tell about methods: spreads, the equal-cost verdict, and all of it in sentences.

Equal cost of privacy: Xu et al. 2021, section 6.1.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from simulations.results.reference import is_reference
from simulations.results.summary import TAU, at_most

LEVEL = 0.05
"""Level of significance."""


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
