"""How much two groups differ, for each pair of groups: differences of rates that were released, at no cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from fedfair.fairness.intervals import Estimate, difference
from simulations.fitting.fit_folder import Story

COMPARED = {"positive_rate": "selection rate", "true_positive_rate": "true positive rate",
            "false_positive_rate": "false positive rate", "accuracy": "accuracy"}
"""Rates that are compared, and what they are called."""


class Pair(NamedTuple):
    """Two groups, and by how much each rate of the first is above that of the second.

    The intervals hold with 95 %, each by itself.
    """

    first: str
    second: str
    differences: Mapping[str, Estimate]


def pairs(story: Story) -> Iterator[Pair]:
    """Yield all pairs of groups of a fit, of its model."""
    for first, second in combinations(story.groups, 2):
        yield Pair(first, second, {metric: difference(story.figure(metric, first), story.figure(metric, second))
                                   for metric in COMPARED})
