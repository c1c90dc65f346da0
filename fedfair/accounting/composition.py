"""Epsilon of composed Poisson-sampled Gaussian releases, by the accountants of Google's dp-accounting.

Neighbouring data sets differ by adding or removing one record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import dp_accounting as dpa
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

Accountant = Literal["pld", "rdp"]
ACCOUNTANTS: tuple[Accountant, ...] = get_args(Accountant)

_FEW = 4  # distinct releases that are composed without rounding
_GRID = math.log(1.02)  # more are rounded down, in noise, to a geometric grid
_FINE, _COARSE = 1e-4, 1e-3  # discretisation of the privacy loss for few and for many distinct releases
_CELLS = 200_000  # of the discretised privacy loss, at most, up to epsilon


class Release(NamedTuple):
    """A Gaussian release on a Poisson sample: the sampling rate and the noise in units of the sensitivity."""

    rate: float
    multiplier: float


def joint_multiplier(gradient: float, counts: float | None) -> float:
    """The multiplier of two Gaussian releases on one batch together: `(s^-2 + s1^-2)^(-1/2)`; 0 if either is 0."""
    if counts is None or gradient == 0 or counts == 0:
        return gradient if counts is None else min(gradient, counts)
    return (gradient**-2 + counts**-2) ** -0.5


def epsilon(releases: Mapping[Release, int], delta: float, accountant: Accountant = "pld") -> float:
    """Epsilon at `delta` of the releases, each taken as often as its value says.

    More than four distinct ones are first rounded to a grid of noise multipliers 2 % apart, downwards, so that the
    result is never too small. Infinite if a release carries no noise. Raises `ValueError` for a delta outside (0, 1).
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}: it must lie strictly between 0 and 1, for example 1e-6")
    charged = {release: count for release, count in releases.items() if release.rate > 0 and count > 0}
    if any(release.multiplier == 0 for release in charged):
        return math.inf
    charged = {release: count for release, count in charged.items() if math.isfinite(release.multiplier)}
    if len(charged) > _FEW:
        rounded: dict[Release, int] = {}
        for (rate, multiplier), count in charged.items():
            down = Release(rate, math.exp(math.floor(math.log(multiplier) / _GRID) * _GRID))
            rounded[down] = rounded.get(down, 0) + count
        charged = rounded
    return _epsilon(tuple(sorted(charged.items())), delta, accountant)


@lru_cache(maxsize=1024)
def _epsilon(releases: tuple[tuple[Release, int], ...], delta: float, accountant: Accountant) -> float:
    """See `epsilon`."""
    if not releases:
        return 0.0
    by_rdp = _composed(RdpAccountant(), releases).get_epsilon(delta)
    if accountant == "rdp":
        return float(by_rdp)
    interval = max(_FINE if len(releases) <= _FEW else _COARSE, by_rdp / _CELLS)
    return float(_composed(PLDAccountant(value_discretization_interval=interval), releases).get_epsilon(delta))


def _composed(accountant: dpa.PrivacyAccountant, releases: tuple[tuple[Release, int], ...]) -> dpa.PrivacyAccountant:
    """The accountant after all the releases."""
    for (rate, multiplier), count in releases:
        gaussian = dpa.GaussianDpEvent(multiplier)
        accountant.compose(dpa.PoissonSampledDpEvent(rate, gaussian) if rate < 1 else gaussian, count)
    return accountant
