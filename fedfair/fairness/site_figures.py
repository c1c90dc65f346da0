"""Figures by site, and by group within each site, from noisy counts of every group at every site.

The figures are those of `fedfair.fairness.noisy_figures`. A gap of site "all" and group "all" is one between sites. For
every group there are besides, at site "all",

- `positive_rate_less_others`: its positive rate less that of all other records; and the same within sites, on average
  (`fedfair.fairness.within_sites`), as `positive_rate_less_others_within_sites`;
- both of `true_positive_rate`.

With more than two groups, the intervals of one of these hold for all groups together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.intervals import Estimate, difference, quantile
from fedfair.fairness.metrics import ALL
from fedfair.fairness.noisy_figures import CONFIDENCE, FIGURES, NoisyCounts, Summed, gaps
from fedfair.fairness.within_sites import Arm, mean_gap

COMPARED = ("positive_rate", "true_positive_rate")
"""Rates by which a group is compared with the others, over all and within sites."""

LESS_OTHERS, WITHIN_SITES = "_less_others", "_within_sites"


class SiteFigure(NamedTuple):
    """One figure of a group at a site, either of which may be "all"; the interval holds with `CONFIDENCE`."""

    site: str
    group: str
    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SiteCounts:
    """Counts of decisions with noise, by site and group.

    Attributes:
        counts: Counts at S K places: all groups of the first site, then those of the next.
        sites: Names of the sites.
        groups: Names of the groups.
    """

    counts: NoisyCounts
    sites: tuple[str, ...]
    groups: tuple[str, ...]

    def figures(self, confidence: float = CONFIDENCE) -> list[SiteFigure]:
        """Return all figures.

        Args:
            confidence: Probability with which each interval holds.
        """
        rows: list[SiteFigure] = []
        for number, site in enumerate(self.sites):
            rows += self._of_site(site, number * len(self.groups), confidence)
        sites = [self._summed(range(len(self.groups)), [number]) for number in range(len(self.sites))]
        rows += [SiteFigure(ALL, ALL, name, *gap) for name, gap in gaps(sites, confidence)]
        for number, group in enumerate(self.groups if len(self.groups) > 1 else ()):
            rows += [SiteFigure(ALL, group, name, *found) for name, found in self._less_others(number, confidence)]
        return rows

    def _of_site(self, site: str, first: int, confidence: float) -> Iterator[SiteFigure]:
        """Yield the figures of one site, whose groups are at the places from `first` on."""
        places = range(first, first + len(self.groups))
        groups, z = [Summed(self.counts, [place]) for place in places], quantile(confidence)
        for name, group in ((ALL, Summed(self.counts, places)), *zip(self.groups, groups, strict=True)):
            for metric, compute in FIGURES.items():
                yield SiteFigure(site, name, metric, *compute(group, z))
        for metric, gap in gaps(groups, confidence):
            yield SiteFigure(site, ALL, metric, *gap)

    def _less_others(self, group: int, confidence: float) -> Iterator[tuple[str, Estimate]]:
        """Yield by how much a group's rates are above those of the others, over all and within sites."""
        z = quantile(confidence, len(self.groups) if len(self.groups) > 2 else 1)
        others, sites = [number for number in range(len(self.groups)) if number != group], range(len(self.sites))
        own, rest = self._summed([group], sites), self._summed(others, sites)
        for metric in COMPARED:
            yield f"{metric}{LESS_OTHERS}", difference(FIGURES[metric](own, z), FIGURES[metric](rest, z))
            one, other = (self._arm(metric, numbers) for numbers in ([group], others))
            if one and other:
                noise = Summed(self.counts, [0]).noise
                yield f"{metric}{LESS_OTHERS}{WITHIN_SITES}", mean_gap(one, other, noise, z)

    def _arm(self, metric: str, groups: list[int]) -> Arm | None:
        """Return the counts of some groups at every site that a rate is of; None without a favourable class."""
        alike = Summed(self.counts, [0])
        if alike.favourable is None:
            return None
        whole = alike.mask() if metric == "positive_rate" else alike.mask(alike.favourable)
        part = alike.mask(None, alike.favourable) & whole
        tables = [self._summed(groups, [site]).confusion for site in range(len(self.sites))]
        cells = len(groups) * int(part.sum()), len(groups) * int((whole & ~part).sum())
        return Arm(_added(tables, part), _added(tables, whole & ~part), cells)

    def _summed(self, groups: list[int] | range, sites: list[int] | range) -> Summed:
        """Return the counts of some groups at some sites together."""
        return Summed(self.counts, [site * len(self.groups) + group for site in sites for group in groups])


def _added(tables: list[Tensor], mask: Tensor) -> Tensor:
    """Return the sum over some cells of each table, `[S]`."""
    return torch.stack([table[mask].sum() for table in tables])
