"""Which group loses most under privacy, and which method recovers it: only as far as the seeds tell."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import LEVEL, constant_runs, holm, wilcoxon_less
from simulations.statistics.summary import REFERENCE, is_reference, privacy_costs

PLAIN = "dpsgd"
"""The method whose cost others may recover."""


def verdict(final: pd.DataFrame, sizes: dict[str, int]) -> list[str]:
    """Say which group loses how much under dpsgd, and which method loses less.

    A superlative needs seeds that tell it from every alternative: one-sided Wilcoxon tests paired by seed, whose
    largest p-value, times the number of candidates, is below 0.05.

    Args:
        final: Final metrics of runs on one data set, from `simulations.statistics.summary.final_test`.
        sizes: Training records by group; 0 where the numbers are not public.

    Returns:
        Sentences; none without sgd and dpsgd, if sgd predicts one class alone, or if no group's cost is known.
    """
    strategies, constant = set(final.index.unique("strategy")), constant_runs(measures(final))
    if not {REFERENCE, PLAIN} <= strategies or REFERENCE in constant:
        return []
    costs = privacy_costs(final).drop(columns=ALL, errors="ignore").reindex(columns=list(sizes))
    paid = costs[costs.index.get_level_values("strategy") == PLAIN].dropna(axis=1, how="all")
    if paid.empty:
        return []
    group, runs = str(paid.mean().idxmax()), len(paid)
    over = f" on average over {runs} seeds" if runs > 1 else ""
    if paid[group].mean() <= 0:
        which = " that has test records" if paid.shape[1] < len(sizes) else ""
        return [f"Under {PLAIN} no group{which} has a lower accuracy than under {REFERENCE}{over}: the least change is "
                f"{-paid[group].mean() + 0.0:.3f}, of group {group}."]
    before = final.xs(REFERENCE, level="strategy")[group, "accuracy"].mean()
    held = f" ({sizes[group]:,} of {sum(sizes.values()):,} records)" if sizes[group] else ""
    lost = (f"Under {PLAIN}, group {group}{held} loses {paid[group].mean():.3f} of its accuracy{over}, from "
            f"{before:.3f} under {REFERENCE}")
    others = [name for name in strategies if not is_reference(name) and name != PLAIN and name not in constant]
    of_group = costs[group].droplevel(0).unstack("strategy")[[PLAIN, *sorted(others)]].dropna(axis=1, how="all")
    return [lost + _more_than_others(-paid, group, runs) + ".", *_recovered(of_group)]


def is_least(values: pd.DataFrame, name: str) -> bool:
    """Return whether the seeds tell that one column is smaller than every other, whichever was to be named.

    Args:
        values: Values with a row for each seed and a column for each candidate.
        name: Column that may be the smallest.

    Returns:
        True if each of the other columns is told from it, after a correction for the number of candidates.
    """
    others = [str(column) for column in values if column != name]
    return bool(others) and len(values.columns) * max(_p(values, name, other) for other in others) < LEVEL


def _p(values: pd.DataFrame, smaller: str, larger: str) -> float:
    """Return the p-value of one column being smaller than another, over the seeds that both have."""
    both = values[[smaller, larger]].dropna()
    return wilcoxon_less(list(both[smaller]), list(both[larger]))


def _more_than_others(gained: pd.DataFrame, group: str, runs: int) -> str:
    """Return the end of the sentence on the group with the largest mean loss."""
    if gained.shape[1] < 2:
        return ""
    if is_least(gained, group):
        return ", more than any other group"
    return (f"; {_seeds(runs)} cannot tell which group loses most")


def _recovered(costs: pd.DataFrame) -> Sequence[str]:
    """Say which method loses less than dpsgd, by the costs of one group: a row for each seed, a column for each."""
    others = [str(name) for name in costs if name != PLAIN]
    if not others:
        return []
    back = {name: (costs[PLAIN] - costs[name]).mean() for name in others}
    best = max(others, key=lambda name: back[name])
    if not back[best] > 0:
        return ["No other method's mean loss there is smaller."]
    adjusted = dict(zip(others, holm([_p(costs, name, PLAIN) for name in others]), strict=True))
    if adjusted[best] >= LEVEL:
        return [f"{best}'s mean loss there is smaller by {back[best]:.3f}, which {_seeds(len(costs))} cannot tell from "
                "chance."]
    most = len(others) > 1 and is_least(costs[others], best)
    return [f"{best} recovers {back[best]:.3f} of it{', more than any other method' * most} (Wilcoxon, Holm over "
            f"{len(others)} test{'s' * (len(others) > 1)}, {len(costs)} seeds, p < {LEVEL})."]


def _seeds(number: int) -> str:
    """Return a number of seeds in words."""
    return f"{number} seeds" if number > 1 else "one seed"
