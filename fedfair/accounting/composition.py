"""Epsilon of composed Poisson-sampled Gaussian releases, and the noise that a target epsilon needs (calibration).

Neighbouring data sets differ by adding or removing one record.

Without sampling epsilon has a closed form: releases of noise multipliers s_j are together one Gaussian with
mu^2 = sum_j s_j^-2, and

    delta(epsilon) = F(mu / 2 - epsilon / mu) - e^epsilon F(-mu / 2 - epsilon / mu),     F the normal distribution

exactly (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from fedfair.accounting import fourier, renyi
from fedfair.accounting.allocation import Allocation, composed
from fedfair.accounting.events import Noisy, Release, refuse_impossible
from fedfair.accounting.figures import up
from fedfair.accounting.knots import mixtures
from fedfair.accounting.selection import Charged, Charges, Selection, gained, most_gained, unfolded
from fedfair.plugins.registry import Registry

_LARGEST = 20.0  # mu, above which rounding would count
_MARGIN = 1e-9  # by which what is returned is larger, beside the rounding of the formula
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e5  # the noise multipliers among which calibration looks


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return an upper bound, above the exact epsilon by at most 2e-9 of it.

    Args:
        mu: Root of the sum of the multipliers' inverse squares, from 0 to 20; above that rounding would count.
        delta: Delta, strictly between 0 and 1.

    Raises:
        ValueError: For another mu.
    """
    if not 0 < mu <= _LARGEST:
        raise ValueError(f"mu is {mu}: take a number above 0, and at most {_LARGEST:g}")
    return _least(lambda epsilon: float(_delta(epsilon, mu)), delta, _enough(mu, delta))


def _epsilon_of_best(mu: float, delta: float, selection: Selection) -> float:
    """Return an upper bound on epsilon where one of the releases that `mu` adds up is the best of several trials.

    Args:
        mu: As `gaussian_epsilon` has it, of all releases, with one trial of the selection.
        delta: Delta, strictly between 0 and 1.
        selection: The selection.
    """
    weights, gains = gained(selection)
    most = _enough(mu, delta / selection.mean) + most_gained(selection)
    return _least(lambda epsilon: float(weights @ _delta(epsilon - gains, mu)), delta, most)


def _enough(mu: float, delta: float) -> float:
    """Return an epsilon at which delta is smaller, from a bound on the tails of a normal distribution."""
    return mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-12


def _least(delta_at: Callable[[float], float], delta: float, high: float) -> float:
    """Return an epsilon at which delta is small enough, above the least by at most twice the margin."""
    low = 0.0
    if delta_at(low) <= delta:
        return 0.0
    while high - low > _MARGIN * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta * (1 - _MARGIN) else (middle, high)
    return high * (1 + _MARGIN)


def _mu_of(releases: Mapping[Release, int]) -> float | None:
    """Return the mu of all releases together, where nothing is sampled and `gaussian_epsilon` takes it."""
    mu = math.sqrt(sum(count / release.multiplier**2 for release, count in releases.items()))
    return mu if 0 < mu <= _LARGEST and all(release.rate == 1 for release in releases) else None


def _delta(epsilon: Any, mu: float) -> Any:
    """Return delta at an epsilon, or at each of an array."""
    from scipy.special import log_ndtr  # here, since it takes time to import

    above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(above) * -np.expm1(np.minimum(below - above, 0.0))


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
    epochs = {release: count for release, count in releases if accountant == "pld" and isinstance(release, Allocation)}
    plain, left, extra = unfolded({release: count for release, count in releases if release not in epochs}, delta)
    if epochs:
        return _by_pld_of_epochs(plain, epochs, left) + extra
    simple, mu = ACCOUNTANTS[accountant](plain, left) + extra, _mu_of(plain)
    selected = [release for release, count in releases for _ in range(count) if isinstance(release, Selection)]
    if accountant == "pld" and mu is not None and len(selected) == 1:
        return min(simple, _epsilon_of_best(mu, delta, selected[0]))
    return simple


@ACCOUNTANTS.register("rdp")
def by_rdp(releases: Mapping[Release, int], delta: float) -> float:
    """Return epsilon by Renyi divergences (see `renyi`)."""
    return renyi.compose(mixtures(releases, renyi.KNOT_RATIO), delta)


@ACCOUNTANTS.register("rdp-classic")
def by_rdp_classic(releases: Mapping[Release, int], delta: float) -> float:
    """Return epsilon by Renyi divergences as the papers before 2020 converted them (see `renyi.compose_classic`).

    A valid upper bound, but never the least of the accountants': for comparison with printed figures.
    """
    return renyi.compose_classic(mixtures(releases, renyi.KNOT_RATIO), delta)


@ACCOUNTANTS.register("pld")
def by_pld(releases: Mapping[Release, int], delta: float) -> float:
    """Return epsilon by privacy loss distributions (see `fourier`); with very little noise, by Renyi divergences.

    Where nothing is sampled the distribution is a Gaussian, and epsilon is known in closed form (`gaussian_epsilon`).
    """
    if (mu := _mu_of(releases)) is not None:
        return gaussian_epsilon(mu, delta)
    if min(release.multiplier for release in releases) < _LEAST:
        return by_rdp(releases, delta)
    return fourier.compose(mixtures(releases, fourier.KNOT_RATIO), delta)


def _by_pld_of_epochs(releases: Mapping[Release, int], epochs: Mapping[Allocation, int], delta: float) -> float:
    """Return epsilon by privacy loss distributions, of releases and of epochs of balls in bins (see `allocation`).

    With very little noise an epoch is charged as one release, as it is by other accountants.
    """
    noisy: list[Noisy] = [*releases, *epochs]
    enough = min(each.multiplier for each in noisy) >= _LEAST
    summed = {epoch: count for epoch, count in epochs.items() if enough and min(epoch.bins, epoch.steps) > 1}
    plain = Counter(releases)
    for epoch, count in epochs.items():
        if epoch not in summed:
            plain[Release(epoch.rate, epoch.multiplier)] += count
    if not summed:
        return by_pld(plain, delta)
    return fourier.compose(mixtures(plain, fourier.KNOT_RATIO) if plain else [], delta, composed(summed, delta))


def multiplier_of(target: float, delta: float, accountant: Accountant = "pld") -> float:
    """Return the noise multiplier of a single release about all records that takes all of a target epsilon.

    Args:
        target: Epsilon that must not be exceeded, above 0.
        delta: Delta at which epsilon is computed, between 0 and 1.
        accountant: "pld" or "rdp".

    Raises:
        ValueError: If no noise is enough.

    Examples:
        >>> round(multiplier_of(1.0, delta=1e-5, accountant="rdp"), 2)
        4.05
    """
    return calibrate(lambda multiplier: {Release(1.0, multiplier): 1}, target, delta, accountant)


def calibrate(releases: Callable[[float], Charges], target: float, delta: float,
              accountant: Accountant = "pld") -> float:
    """Return the smallest noise multiplier (to 0.01 %, at least 0.05) that keeps a target epsilon.

    Args:
        releases: From a noise multiplier to everything that one record will be charged, count queries included: how
            often each release occurs.
        target: Epsilon that must not be exceeded, above 0.
        delta: Delta at which epsilon is computed, between 0 and 1.
        accountant: "pld" (privacy loss distributions, tight) or "rdp" (Renyi divergences).

    Returns:
        The noise multiplier, in units of the sensitivity.

    Raises:
        ValueError: If no multiplier up to 100,000 is enough.

    Examples:
        >>> thousand_steps = lambda multiplier: {Release(0.01, multiplier): 1000}
        >>> round(calibrate(thousand_steps, target=2.0, delta=1e-5, accountant="rdp"), 3)
        1.022
    """

    def excess(log_multiplier: float) -> float:
        """Return how far the epsilon of a noise multiplier lies above the target."""
        return epsilon(releases(math.exp(log_multiplier)), delta, accountant) - target

    least, most = math.log(_LEAST_NOISE), math.log(_MOST_NOISE)
    low = high = 0.0
    while excess(high) > 0:
        if high == most:
            raise ValueError(f"target_epsilon {target} cannot be reached: even with a noise multiplier of "
                             f"{_MOST_NOISE:g}, {up(excess(high) + target, '.3g')} is spent; allow more, take fewer "
                             "steps, or more noise on the counts")
        low, high = high, min(high + 1, most)
    while low == high or excess(low) <= 0:
        if low == least:
            return _LEAST_NOISE
        low, high = max(low - 1, least), low
    root = scipy.optimize.brentq(excess, low, high, xtol=5e-5)
    while excess(root) > 0:
        root += 1e-5
    return math.exp(root)
