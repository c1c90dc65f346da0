"""Gaps between groups, of rates with intervals: the largest difference of any two, or of those that a person named.

A group of which a rate cannot be told would decide the gap of all by its noise. So it is left out, unless fewer than
two are left, or it was named: who names groups, without looking at records, says in public which of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations

from fedfair.fairness.intervals import Estimate, difference, folded, largest, quantile, ratio, size, smallest
from fedfair.fairness.metrics import gaps_over
from fedfair.plugins.registry import unknown

Rates = Callable[[str, float], Estimate]
"""A group's figure by its name, with an interval of so many deviations."""

RATIO, WORST = "selection_ratio", "worst_group_accuracy"


def places_of(named: Sequence[str], groups: Sequence[str]) -> tuple[int, ...]:
    """Return the places of named groups among all.

    Args:
        named: Names of groups; none for no choice.
        groups: Names of all groups.

    Raises:
        ValueError: If there is no such group.

    Examples:
        >>> places_of(["F", "M"], ["F", "M", "missing"]), places_of([], ["F", "M"])
        ((0, 1), ())
    """
    for name in named:
        if name not in groups:
            raise unknown("group in gap_among", name, groups)
    return tuple(groups.index(name) for name in named)


def gaps(groups: Sequence[Rates], known: Collection[str], confidence: float, named: Sequence[int] = ()
         ) -> Iterator[tuple[str, Estimate]]:
    """Yield the gaps between groups; with more than two, all pairs' intervals hold together.

    Args:
        groups: The groups.
        known: Names of the figures that they have.
        confidence: Probability with which the interval of a gap holds.
        named: Places of the groups that count; none for all of which the rates can be told.
    """
    chosen = [groups[place] for place in named]
    if len(groups) < 2:
        return
    for name, over in gaps_over(known).items():
        told = chosen or _told(groups, over, confidence)
        pairs = list(combinations(range(len(told)), 2))
        z = quantile(confidence, len(pairs) * len(over))
        rates = [[group(metric, z) for group in told] for metric in over]
        yield name, largest([size(difference(of[a], of[b])) for of in rates for a, b in pairs])
    told = chosen or _told(groups, ("positive_rate",), confidence)
    pairs = list(combinations(range(len(told)), 2))
    selected = [group("positive_rate", quantile(confidence, len(pairs))) for group in told]
    yield RATIO, smallest([folded(ratio(selected[a], selected[b])) for a, b in pairs])
    told = chosen or _told(groups, ("accuracy",), confidence)
    yield WORST, smallest([group("accuracy", quantile(confidence, len(told))) for group in told])


def _told(groups: Sequence[Rates], metrics: Sequence[str], confidence: float) -> Sequence[Rates]:
    """Return the groups of which each of some rates can be told; all, if those are fewer than two."""
    z = quantile(confidence)
    told = [group for group in groups if all(group(metric, z).told for metric in metrics)]
    return told if len(told) > 1 else groups
