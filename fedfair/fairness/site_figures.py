"""Figures by site, and by group within each site, from noisy counts of every group at every site.

The figures are those of `fedfair.fairness.noisy_figures`. A gap of site "all" and group "all" is one between sites. For
every group there are besides, at site "all",

- `positive_rate_less_others`: its positive rate less that of all other records; and the same within sites, on average
  (`fedfair.fairness.site_figures`), as `positive_rate_less_others_within_sites`;
- both of `true_positive_rate`.

With more than two groups, the intervals of one of these hold for all groups together.

Gaps between groups within sites: by how much a rate differs between groups of one and the same site, on average.

Groups that are treated alike at every site have different rates over all if they are at different sites (Simpson 1951).
At a site with n_s records of one group and m_s of the others, of which a_s and b_s have what the rate counts, the rates
differ by d_s = a_s / n_s - b_s / m_s. The mean gap

    sum_s w_s d_s / sum_s w_s,     w_s = n_s m_s / (n_s + m_s),

is that of Mantel and Haenszel (1959; Greenland and Robins 1985): a site counts by how much it tells, and one without
records of a group not at all. It is a ratio of two sums over noisy counts, and its interval is Fieller's, with the
variances and the covariance of both sums by the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.intervals import UNKNOWN, Estimate, difference, gaps, places_of, quantile
from fedfair.fairness.metrics import ALL
from fedfair.fairness.noisy_figures import CONFIDENCE, FIGURES, NoisyCounts, Summed

_OF_NOISE = 3.0  # a site with fewer records than so many deviations of their noise is left out


class Arm(NamedTuple):
    """Counts of one of two arms at every site, with noise.

    Attributes:
        part: Records that have what the rate counts, `[S]`.
        rest: The others that the rate is of, `[S]`.
        cells: Number of cells that were added up for a count of part and of rest.
    """

    part: Tensor
    rest: Tensor
    cells: tuple[int, int]


def mean_gap(one: Arm, other: Arm, deviation: float, z: float) -> Estimate:
    """Return by how much the rate of one arm is above that of the other within sites, on average.

    Args:
        one: Counts of the first arm.
        other: Counts of the second.
        deviation: Standard deviation of the noise on every cell.
        z: Deviations that the interval reaches.

    Returns:
        The gap, from -1 to 1; its interval is the whole of that if the noise hides how many records there are.
    """
    counts = torch.stack([one.part, one.rest, other.part, other.rest])
    cells = counts.new_tensor([*one.cells, *other.cells]).unsqueeze(1)
    known = counts.sum(0) > _OF_NOISE * deviation * math.sqrt(float(cells.sum()))
    a, b, c, d = counts = counts[:, known]
    total = counts.sum(0)
    gaps, weights = (a * d - b * c) / total, (a + b) * (c + d) / total
    above, below = float(gaps.sum()), float(weights.sum())
    if not below > 0:
        return Estimate(UNKNOWN.value, -1.0, 1.0)
    of_gaps = torch.stack([d - gaps, -c - gaps, -b - gaps, a - gaps]) / total
    of_weights = torch.stack([c + d - weights] * 2 + [a + b - weights] * 2) / total
    deviations = (counts.clamp(min=0) + cells * deviation**2).sqrt()
    moved = torch.stack([(deviations * of_gaps).flatten(), (deviations * of_weights).flatten()])
    return _fieller(above, below, z * moved)


def _fieller(above: float, below: float, moved: Tensor) -> Estimate:
    """Return a ratio of two sums with Fieller's interval, cut to [-1, 1].

    Args:
        above: Upper sum.
        below: Lower sum, above 0.
        moved: By how much z deviations of each count move both sums, `[2, counts]`.
    """
    value = min(max(above / below, -1.0), 1.0)
    (of_above, of_both), (_, of_below) = (moved @ moved.T).tolist()
    square = below**2 - of_below
    half = above * below - of_both
    root = half**2 - square * (above**2 - of_above)
    if square <= 0 or root < 0:
        return Estimate(value, -1.0, 1.0)
    low, high = ((half + sign * math.sqrt(root)) / square for sign in (-1, 1))
    return Estimate(value, min(max(low, -1.0), value), max(min(high, 1.0), value))


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
        among: Names of the groups among which gaps are; none for all of which the rates can be told.
    """

    counts: NoisyCounts
    sites: tuple[str, ...]
    groups: tuple[str, ...]
    among: tuple[str, ...] = ()

    def figures(self, confidence: float = CONFIDENCE) -> list[SiteFigure]:
        """Return all figures."""
        rows: list[SiteFigure] = []
        for number, site in enumerate(self.sites):
            rows += self._of_site(site, number * len(self.groups), confidence)
        sites = [self._summed(range(len(self.groups)), [number]).figure for number in range(len(self.sites))]
        rows += [SiteFigure(ALL, ALL, name, *gap) for name, gap in gaps(sites, FIGURES, confidence)]
        for number, group in enumerate(self.groups if len(self.groups) > 1 else ()):
            rows += [SiteFigure(ALL, group, name, *found) for name, found in self._less_others(number, confidence)]
        return rows

    def _of_site(self, site: str, first: int, confidence: float) -> Iterator[SiteFigure]:
        """Yield the figures of one site, whose groups are at the places from `first` on."""
        places = range(first, first + len(self.groups))
        groups, z = [Summed(self.counts, [place]) for place in places], quantile(confidence)
        for name, group in ((ALL, Summed(self.counts, places)), *zip(self.groups, groups, strict=True)):
            for metric in FIGURES:
                yield SiteFigure(site, name, metric, *group.figure(metric, z))
        named = places_of(self.among, self.groups)
        for metric, gap in gaps([group.figure for group in groups], FIGURES, confidence, named):
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
