"""Gaps between groups within sites: by how much a rate differs between groups of one and the same site, on average.

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
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.intervals import UNKNOWN, Estimate

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
