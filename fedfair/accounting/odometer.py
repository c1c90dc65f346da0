"""Adaptively chosen releases: an odometer says what was spent, a filter stays within a budget.

Let step t be chosen from the outputs before it, and r_t be its Renyi divergence of order a given those. With L_t the
privacy loss up to t, exp((a - 1)(L_t - r_1 - ... - r_t)) is a non-negative supermartingale of mean at most 1.

A limit on epsilon that releases stay within although whoever asks for them sees the earlier ones first.

A composed epsilon holds for releases that were fixed in advance. Here one side of (epsilon, delta) is checked before
each release, and the next one, or whether there is one, may depend on all that was seen. Two checks share delta:

- All releases are of the kind of the first, which was chosen before anything was seen. Then only their number is
  chosen on the way. A run that stops early is post-processing of one that takes all steps that the limit allows, so the
  composed epsilon at delta / 2 holds for all ends of this sort together.
- Anything else: an odometer's reading at delta / 2 (`odometer.reading`). With probability 1 - delta / 2 the privacy
  loss never exceeded it, so ends of this sort add at most delta / 2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedfair.accounting import renyi
from fedfair.accounting.allocation import Allocation
from fedfair.accounting.composition import epsilon
from fedfair.accounting.events import Release, refuse_impossible
from fedfair.accounting.knots import mixtures
from fedfair.accounting.selection import Charged, Charges, Selection, divergence, unfolded

_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
_FILTER_ORDERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 63, 128, 256)
_STEP = math.log(1.005)  # between neighbouring noise multipliers that a filter chooses from
_LEAST, _MOST = math.floor(math.log(0.1) / _STEP), math.ceil(math.log(1e4) / _STEP)


def reading(spent: Charges, delta: float) -> float:
    """Return an odometer's reading (Rogers et al. 2016): with probability 1 - delta the privacy loss never exceeded it.

    That holds at every step, although each release was chosen after seeing the ones before. By Ville's inequality the
    supermartingale exceeds A / delta at any time with probability at most delta / A, so
    L_t <= r_1 + ... + r_t + log(A / delta) / (a - 1) for all t; A = 11 orders are tried, and a union bound pays for
    choosing the best of them in the end. Compare Lecuyer 2021 and Feldman and Zrnic 2021, section 4. Raises what
    `refuse_impossible` does.
    """
    for release in spent:
        refuse_impossible(release)
    plain, left, extra = unfolded(_whole(spent), delta)
    used = {release: count for release, count in plain.items() if release.rate > 0 and release.multiplier < math.inf}
    if not used:
        return 0.0
    if any(release.multiplier == 0 for release in used):
        return math.inf
    total = renyi.total(mixtures(used, renyi.KNOT_RATIO), _ORDERS)
    return extra + float(np.min(total + math.log(len(_ORDERS) / left) / (np.array(_ORDERS) - 1)))


def _whole(spent: Charges) -> Counter[Charged]:
    """Return the releases with every epoch of balls in bins charged in full before its first step.

    The privacy loss in the middle of an epoch is then covered, too: its moments only grow until the epoch's end.
    """
    whole: Counter[Charged] = Counter()
    for release, count in spent.items():
        whole[Release(1.0, release.multiplier) if isinstance(release, Allocation) else release] += count
    return whole


@dataclass(frozen=True)
class RenyiFilter:
    """A budget of Renyi divergence, `divergence` at one `order` that is fixed before the first step.

    Releases chosen adaptively, each allowed only if all divergences so far and its own stay within the budget, are
    together (order, divergence)-Renyi differentially private, as if they had been fixed in advance (Feldman and Zrnic
    2021, Theorem 3.1).
    """

    order: int
    divergence: float

    def epsilon(self, delta: float) -> float:
        """Return what the budget guarantees at `delta`."""
        return renyi.to_epsilon(np.array([float(self.order)]), np.array([self.divergence]), delta)

    def cost(self, release: Charged) -> float:
        """Return the divergence of one release."""
        if release.multiplier == 0 and release.rate > 0:
            return math.inf
        if release.rate == 0 or math.isinf(release.multiplier):
            return 0.0
        if isinstance(release, Selection):
            return divergence(release, self.order)
        one = Release(release.rate, release.multiplier)  # which costs as much as an epoch of balls in bins, or more
        return float(renyi.divergences(one, (float(self.order),))[0])

    def holds(self, spent: Charges) -> bool:
        """Say whether the releases that were made stayed within the budget."""
        return sum(count * self.cost(release) for release, count in spent.items()) <= self.divergence * (1 + 1e-9)

    def least_multiplier(self, rate: float, allowed: float) -> float:
        """Return the smallest noise multiplier, to 0.5 %, whose release costs at most `allowed`, or infinity."""
        low, high = _LEAST - 1, _MOST + 1
        while high - low > 1:
            middle = (low + high) // 2
            cost = self.cost(Release(rate, math.exp(middle * _STEP)))
            low, high = (low, middle) if cost <= allowed else (middle, high)
        return math.exp(high * _STEP) if high <= _MOST else math.inf


@lru_cache(maxsize=64)
def filter_for(epsilon: float, delta: float, rate: float, steps: int) -> RenyiFilter:
    """Return the filter that guarantees `epsilon` at `delta` with least noise for `steps` equal releases.

    Raises `ValueError` if no order up to 256 gives so small an epsilon.
    """
    candidates = []
    for order in _FILTER_ORDERS:
        budget = renyi.to_divergence(order, epsilon, delta)
        if budget > 0:
            candidate = RenyiFilter(order, budget)
            candidates.append((candidate.least_multiplier(rate, budget / max(steps, 1)), -order, candidate))
    if not candidates:
        raise ValueError(f"a budget of epsilon {epsilon} at delta {delta} is too small for a Renyi filter: take more")
    return min(candidates)[2]


def spent(releases: Mapping[Release, int], delta: float) -> float:
    """Return the least limit that these releases stay within.

    Args:
        releases: How often each release was made; the order does not matter.
        delta: Delta of the limit, strictly between 0 and 1.

    Raises:
        ValueError: For an impossible release.

    Examples:
        >>> in_advance = {Release(1.0, 10.0): 4}
        >>> chosen_on_the_way = {Release(1.0, 10.0): 3, Release(1.0, 10.1): 1}
        >>> round(spent(in_advance, 1e-5), 2), round(spent(chosen_on_the_way, 1e-5), 2)
        (0.76, 1.11)
    """
    adaptive = reading(releases, delta / 2)
    return min(adaptive, epsilon(releases, delta / 2)) if len(releases) == 1 else adaptive


def stays_within(releases: Mapping[Release, int], limit: float, delta: float) -> bool:
    """Say whether releases stay within a limit on epsilon; the cheap check comes first.

    Args:
        releases: How often each release was made, with the one that is to come.
        limit: Largest epsilon.
        delta: Delta of the limit, strictly between 0 and 1.

    Raises:
        ValueError: For an impossible release.

    Examples:
        >>> [stays_within({Release(1.0, 10.0): number}, limit=1.0, delta=1e-5) for number in (1, 2, 4, 8)]
        [True, True, True, False]
    """
    return reading(releases, delta / 2) <= limit or spent(releases, delta) <= limit
