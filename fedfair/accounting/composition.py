"""Epsilon of composed Poisson-sampled Gaussian releases.

Neighbouring data sets differ by adding or removing one record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

from fedfair.accounting import fourier, renyi
from fedfair.accounting.events import Release, refuse_impossible
from fedfair.accounting.knots import mixtures

Accountant = Literal["pld", "rdp"]
ACCOUNTANTS: tuple[Accountant, ...] = get_args(Accountant)

_LEAST = 0.06  # noise multipliers below have losses that a float cannot hold


def epsilon(releases: Mapping[Release, int], delta: float, accountant: Accountant = "pld") -> float:
    """Return an upper bound on the epsilon at `delta` of the releases, each counted as often as its value says.

    "pld" composes privacy loss distributions (see `fourier`), "rdp" Renyi divergences (see `renyi`). Thousands of
    distinct multipliers cost little more than a few (see `knots`). Infinite if a release carries no noise. Raises
    `ValueError` for a delta outside (0, 1), and what `refuse_impossible` does.
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
def _epsilon(releases: frozenset[tuple[Release, int]], delta: float, accountant: Accountant) -> float:
    """See `epsilon`."""
    if not releases:
        return 0.0
    little = min(release.multiplier for release, _ in releases) < _LEAST
    if accountant == "rdp" or little:
        return renyi.compose(mixtures(dict(releases), renyi.KNOT_RATIO), delta)
    return fourier.compose(mixtures(dict(releases), fourier.KNOT_RATIO), delta)
