"""Epsilon of composed Poisson-sampled Gaussian releases.

Neighbouring data sets differ by adding or removing one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from fedfair.accounting import fourier, gaussian, renyi
from fedfair.accounting.events import Release, refuse_impossible
from fedfair.accounting.knots import mixtures
from fedfair.accounting.selection import Charged, Charges, unfolded
from fedfair.plugins.registry import Registry

Accountant = str
"""The name of an accountant."""

Composed = Callable[[Mapping[Release, int], float], float]
"""From releases, each with how often it was made, and a delta to epsilon: no rate of 0, no multiplier of 0 or inf."""

ACCOUNTANTS: Registry[Composed] = Registry("accountant")
"""The accountants by name."""

_LEAST = 0.06  # noise multipliers below have losses that a float cannot hold


def epsilon(releases: Charges, delta: float, accountant: Accountant = "pld") -> float:
    """Return an upper bound on the epsilon at `delta` of the releases, each counted as often as its value says.

    Thousands of distinct multipliers cost little more than a few (see `knots`). Infinite if a release carries no noise.
    Raises `ValueError` for a delta outside (0, 1), for an unknown accountant, and what `refuse_impossible` does.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}: it must lie strictly between 0 and 1, for example 1e-6")
    for release in releases:
        refuse_impossible(release)
    charged = {release: count for release, count in releases.items() if release.rate > 0 and count > 0}
    if any(release.multiplier == 0 for release in charged):
        return math.inf
    charged = {release: count for release, count in charged.items() if math.isfinite(release.multiplier)}
    return _epsilon(frozenset(charged.items()), delta, accountant)


@lru_cache(maxsize=1024)
def _epsilon(releases: frozenset[tuple[Charged, int]], delta: float, accountant: Accountant) -> float:
    """See `epsilon`."""
    if not releases:
        return 0.0
    plain, left, extra = unfolded(dict(releases), delta)
    return ACCOUNTANTS[accountant](plain, left) + extra


@ACCOUNTANTS.register("rdp")
def by_rdp(releases: Mapping[Release, int], delta: float) -> float:
    """Return epsilon by Renyi divergences (see `renyi`)."""
    return renyi.compose(mixtures(releases, renyi.KNOT_RATIO), delta)


@ACCOUNTANTS.register("pld")
def by_pld(releases: Mapping[Release, int], delta: float) -> float:
    """Return epsilon by privacy loss distributions (see `fourier`); with very little noise, by Renyi divergences.

    Where nothing is sampled the distribution is a Gaussian, and epsilon is known in closed form (see `gaussian`).
    """
    mu = math.sqrt(sum(count / release.multiplier**2 for release, count in releases.items()))
    if all(release.rate == 1 for release in releases) and gaussian.can(mu):
        return gaussian.compose(mu, delta)
    if min(release.multiplier for release in releases) < _LEAST:
        return by_rdp(releases, delta)
    return fourier.compose(mixtures(releases, fourier.KNOT_RATIO), delta)
