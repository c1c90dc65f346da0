"""Counts of decisions by group and label, and of scores: all that figures which are released with noise are made of.

A record is in one cell of each of two tables. Rates need the small one, which gets most of the budget; probabilities
need the one by score, which has few levels, because every cell carries noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.group_counts import favourable_of, log_odds
from fedfair.fairness.reject_option import RejectOption

_ENDS = (0.25, 0.75, 1.5, 2.5)

EDGES = torch.tensor([*(-end for end in reversed(_ENDS)), 0.0, *_ENDS], dtype=torch.float64)
"""Ends between the levels of a score, in log-odds of the favourable class."""

LEVELS = len(EDGES) + 1
"""Levels of a score."""

CONFUSION, SCORES = "confusion", "scores"
"""The tables: by group, label and decision, and by group, favourable label or not, and level."""

_OF_CONFUSION = 0.6  # its part of what a release spends, mu^2


class Deciding(NamedTuple):
    """How outputs become decisions and levels.

    Attributes:
        groups: Number of groups K.
        classes: Number of classes C.
        favourable: Number of the favourable class; None for none, and then scores are not counted.
        rule: Rule of decision by group; None for the class of the largest output.
        sites: Number of sites S; a record is counted at S * K places, those of the first site first.
    """

    groups: int
    classes: int
    favourable: int | None = None
    rule: RejectOption | None = None
    sites: int = 1

    @property
    def zeros(self) -> dict[str, Tensor]:
        """The counts of no record: confusion `[S K, C, C]`, and scores `[S K, 2, LEVELS]` if a class is favourable."""
        places = self.sites * self.groups
        tables = {CONFUSION: torch.zeros(places, self.classes, self.classes, dtype=torch.float64)}
        if favourable_of(self.favourable, self.classes) is not None:
            tables[SCORES] = torch.zeros(places, 2, LEVELS, dtype=torch.float64)
        return tables

    def counts(self, output: Tensor, y: Tensor, group: Tensor, site: Tensor | None = None) -> dict[str, Tensor]:
        """Count n records by table.

        Args:
            output: Logits, `[n, C]`; those that are not finite are taken as 0 or very large.
            y: Labels, `[n]`.
            group: Group numbers, `[n]`.
            site: Site numbers, `[n]`; None for one site alone.
        """
        logits, y, group = output.detach().double().nan_to_num(0.0, 1e6, -1e6).cpu(), y.cpu(), group.cpu()
        decided = logits.argmax(1) if self.rule is None else self.rule.predict(logits, group)
        place = group if site is None else site.cpu() * self.groups + group
        cells = {CONFUSION: (place * self.classes + y) * self.classes + decided}
        named = favourable_of(self.favourable, self.classes)
        if named is not None:
            level = torch.bucketize(log_odds(logits, named), EDGES, right=True)
            cells[SCORES] = (place * 2 + (y == named)) * LEVELS + level
        like = self.zeros
        return {name: torch.bincount(cell, minlength=like[name].numel()).view_as(like[name]).double()
                for name, cell in cells.items()}


def factors(tables: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the noise on each table's counts, in units of that of a release with as much privacy of one table alone.

    Weighted by their inverses, the tables change by 1 in Euclidean norm when a record is added or removed.

    Args:
        tables: Counts by table.
    """
    if SCORES not in tables:
        return {CONFUSION: 1.0}
    return {CONFUSION: 1 / math.sqrt(_OF_CONFUSION), SCORES: 1 / math.sqrt(1 - _OF_CONFUSION)}


def ahead() -> Tensor:
    """Return how probably, of two records in a level, that of the favourable class has the higher score, `[LEVELS]`.

    Where scores state log-odds, records of the two classes lie in a level of width w with densities of the ratio e^s,
    and it is 1/2 + w/12 to first order. A level without end counts as one of width 1.
    """
    wide = torch.ones(1, dtype=torch.float64)
    return 0.5 + torch.cat([wide, EDGES[1:] - EDGES[:-1], wide]) / 12


def probabilities() -> Tensor:
    """Return the probability that stands for each level, `[LEVELS]`: that of the middle of its log-odds."""
    inner = (EDGES[1:] + EDGES[:-1]) / 2
    return torch.sigmoid(torch.cat([EDGES[:1] - 0.5, inner, EDGES[-1:] + 0.5]))
