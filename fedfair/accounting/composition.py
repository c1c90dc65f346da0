"""Epsilon of composed Poisson-sampled Gaussian releases, by the accountants of Google's dp-accounting.

Neighbouring data sets differ by adding or removing one record.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import dp_accounting as dpa
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant

Accountant = Literal["pld", "rdp"]
ACCOUNTANTS: tuple[Accountant, ...] = get_args(Accountant)

_FEW = 4  # distinct releases that are composed without rounding
_GRID = math.log(1.015)  # more are rounded down, in noise, to a geometric grid
_FINE, _COARSE = 1e-4, 1e-3  # discretisation of the privacy loss for few and for many distinct releases
_CELLS = 200_000  # of the discretised privacy loss up to epsilon, at most


class Release(NamedTuple):
    """A Gaussian release on a Poisson sample: the sampling rate and the noise in units of the sensitivity."""

    rate: float
    multiplier: float


def joint_multiplier(gradient: float, counts: float | None) -> float:
    """The multiplier of two Gaussian releases on one batch together: `(s^-2 + s1^-2)^(-1/2)`; 0 if either is 0."""
    if counts is None or gradient == 0 or counts == 0:
        return gradient if counts is None else min(gradient, counts)
    return float((gradient**-2 + counts**-2) ** -0.5)


def epsilon(releases: Mapping[Release, int], delta: float, accountant: Accountant = "pld") -> float:
    """Epsilon at `delta` of the releases, each taken as often as its value says.

    More than four distinct ones are first rounded to a grid of noise multipliers 1.5 % apart, downwards, so that the
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
    return _by_rdp(releases, delta) if accountant == "rdp" else _by_pld(releases, delta)


def _by_rdp(releases: tuple[tuple[Release, int], ...], delta: float) -> float:
    """By Renyi differential privacy (Mironov et al. 2019): the figures that the papers print."""
    accountant = RdpAccountant()
    with _without_absl():
        for (rate, multiplier), count in releases:
            gaussian = dpa.GaussianDpEvent(multiplier)
            accountant.compose(dpa.PoissonSampledDpEvent(rate, gaussian) if rate < 1 else gaussian, count)
        return float(accountant.get_epsilon(delta))


def _by_pld(releases: tuple[tuple[Release, int], ...], delta: float) -> float:
    """By the discretised privacy loss distribution (Koskela et al. 2020; Doroshenko et al. 2022), always from above."""
    interval = max(_FINE if len(releases) <= _FEW else _COARSE, _rough_epsilon(releases, delta) / _CELLS)
    interval = 10 ** (math.ceil(4 * math.log10(interval)) / 4)  # a few distinct ones, so that the cache is of use
    composed: PrivacyLossDistribution | None = None
    for release, count in releases:
        repeated = _privacy_loss(release, interval).self_compose(count)
        composed = repeated if composed is None else composed.compose(repeated)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=512)
def _privacy_loss(release: Release, interval: float) -> PrivacyLossDistribution:
    """The privacy loss of one release."""
    return from_gaussian_mechanism(release.multiplier, sampling_prob=release.rate,
                                   value_discretization_interval=interval)


def _rough_epsilon(releases: tuple[tuple[Release, int], ...], delta: float) -> float:
    """The size of epsilon, by the central limit theorem of Gaussian differential privacy (Bu et al. 2020).

    It only sets the fineness of the discretisation, which is safe whatever it is.
    """
    squares = (count * min(rate**2 * math.expm1(min(multiplier**-2, 100.0)), multiplier**-2)
               for (rate, multiplier), count in releases)
    mu = math.sqrt(sum(squares))
    return mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))


@contextmanager
def _without_absl() -> Iterator[None]:
    """Keep dp-accounting from warning, and from configuring the process's logging in order to warn.

    It warns where it leaves an order out, which only makes epsilon larger.
    """
    root, absl, null = logging.getLogger(), logging.getLogger("absl"), logging.NullHandler()
    level = absl.level
    root.addHandler(null)
    absl.setLevel(logging.ERROR)
    try:
        yield
    finally:
        absl.setLevel(level)
        root.removeHandler(null)
