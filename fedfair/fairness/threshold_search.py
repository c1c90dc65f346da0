"""Search for reject options under which demographic parity holds, on score counts alone.

Every function is post-processing of the counts `[K, 2 G]` of `fedfair.fairness.reject_option.score_counts`, exact or
noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import scipy
import torch
from torch import Tensor

from fedfair.fairness.reject_option import CELLS, GAMMAS, UNSHIFTED, favoured
from fedfair.mechanisms import histograms

ROUNDING = 1e-12
"""Tolerance for rounding: in floating point, 0.9 - 0.85 is above 0.05."""


class Rates(NamedTuple):
    """Bounds on the rate of favourable decisions, by group and shift, `[K, 2 G - 1]` each; both grow with the shift.

    They are equal where a rate is taken as it was counted.
    """

    lower: Tensor
    upper: Tensor


@dataclass(frozen=True)
class Found:
    """The shift of each group, and their demographic parity or an upper bound on it."""

    shifts: tuple[int, ...]
    parity: float


def counted(counts: Tensor) -> Rates:
    """Return the rates as they were counted, over at least one record of every group."""
    rates = (favoured(counts) / counts.sum(1, keepdim=True)).clamp(0, 1)
    return Rates(rates, rates)


def confident(counts: Tensor, confidence: float, one_gamma: bool, multiplier: float = 0.0) -> Rates:
    """Bound the rates in the population that the counted records were drawn from.

    Theorem. Let the records of each group be independent draws, and the model and theta independent of them. With
    probability at least `confidence`, every shift that `toc` (`one_gamma`) or `by_group` accepts with these bounds has
    a demographic parity of at most theta in the population; for `by_group`, and with more than two groups, for all
    theta at once.

    Proof. Each bound is Clopper and Pearson's at level a: it fails with probability at most a at a fixed group, shift
    and side. In general a = (1 - confidence) / (2 K (2 G - 1)), and all hold together (union). With two groups and one
    gamma for both a = (1 - confidence) / 4, whatever G is: put the rules in the order of the first group's shift s, the
    other's being -s. The difference d(s) of the two rates grows with s, and so does its lower bound. To accept a rule
    with d < -theta is then to accept, on this side, the last rule in the order with d < -theta, a fixed rule, and
    happens with probability at most 2 a; likewise for d > theta. (This is fixed-sequence testing, in which the order
    makes a correction for the number of tests unnecessary.) For noisy counts, a tenth of the failure probability goes
    to the noise, whose margin widens counts and sizes before the bounds are taken.
    """
    groups, shifts = len(counts), 2 * len(GAMMAS) - 1
    positives, sizes, failure, wider = favoured(counts), counts.sum(1, keepdim=True), 1 - confidence, 0.0
    if multiplier:
        wider = histograms.margin(CELLS, multiplier, groups * CELLS, failure / 10)
        failure *= 0.9
    level = failure / (4 if one_gamma and groups == 2 else 2 * groups * shifts)
    most = (sizes + wider).clamp(min=1)
    least = (sizes - wider).clamp(min=1)
    few, many = (positives - wider).clamp(min=0), (positives + wider).clamp(min=0)
    lower = torch.where(few > 0, torch.from_numpy(scipy.stats.beta.ppf(level, few, (most - few).clamp(min=0) + 1)), 0.0)
    open_above = many < least
    upper = torch.from_numpy(scipy.stats.beta.ppf(1 - level, many + 1, (least - many).clamp(min=1e-9)))
    return Rates(lower, torch.where(open_above, upper, 1.0))


def toc(rates: Rates, deprived: tuple[bool, ...], theta: float) -> Found:
    """Choose one gamma for all groups: the first of the grid under which demographic parity is at most `theta`, or
    else the one with the smallest parity (Yang et al. 2024, Algorithm 4).

    With more than two groups, all deprived ones are shifted up and all others down; then perhaps no gamma is enough.
    """
    parity = _parity(_by_gamma(rates.lower, deprived), _by_gamma(rates.upper, deprived))
    enough = (parity <= theta + ROUNDING).nonzero()
    chosen = int(enough[0] if len(enough) else (parity == parity.min()).nonzero()[0])
    return Found(tuple(chosen if up else -chosen for up in deprived), float(parity[chosen]))


def by_group(rates: Rates, positives: Tensor, theta: float) -> Found:
    """Choose a gamma for each group: the shifts that change the fewest decisions, among those whose rates all lie in
    a band [a, a + theta].

    `positives` is what `favoured` returns. The search is exact: some best a is one of the lower bounds, and each is
    tried. For each, the best shift of a group is the one inside the band that is closest to no shift. If no band holds
    all groups, the shifts with the smallest parity are chosen.
    """
    lower, upper = rates
    floors = torch.unique(lower).expand(len(lower), -1).contiguous()
    floors = floors[:, floors[0] <= lower[:, -1].min()]
    first = torch.searchsorted(lower.contiguous(), floors)
    last = torch.searchsorted(upper.contiguous(), floors + theta + ROUNDING, right=True) - 1
    inside = (first <= last).all(0)
    columns = torch.where(inside, first.clamp(min=UNSHIFTED).minimum(last), first)
    parity = _parity(lower.gather(1, columns), upper.gather(1, columns))
    changed = (positives - positives[:, [UNSHIFTED]]).abs().gather(1, columns).sum(0)
    within = inside & (parity <= theta + ROUNDING)
    cost = torch.where(within, changed, torch.inf) if bool(within.any()) else parity
    chosen = int((cost == cost.min()).nonzero()[0])
    return Found(tuple((columns[:, chosen] - UNSHIFTED).tolist()), float(parity[chosen]))


def _by_gamma(by_shift: Tensor, deprived: tuple[bool, ...]) -> Tensor:
    """Return bounds at every gamma of the grid, `[K, G]`, from those at every shift, `[K, 2 G - 1]`."""
    return torch.stack([row[UNSHIFTED:] if up else row[: UNSHIFTED + 1].flip(0)
                        for row, up in zip(by_shift, deprived, strict=True)])


def _parity(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the largest difference between the rates of two groups, `[...]`, from bounds `[K, ...]`."""
    differences = upper[:, None] - lower[None]
    same_group = torch.eye(len(lower), dtype=torch.bool).view(len(lower), len(lower), *[1] * (lower.dim() - 1))
    return differences.masked_fill(same_group, -torch.inf).flatten(0, 1).amax(0)
