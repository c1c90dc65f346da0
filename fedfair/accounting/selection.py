"""The best of a random number of trials, and what choosing it costs.

A trial reads all records, and ends with something that has a score. K is drawn, K trials are made, each with noise of
its own, and only the best of them is released: neither the others nor K (Liu and Talwar 2019; Papernot and Steinke
2022). K follows their truncated negative binomial distribution, with a shape eta in (-1, 1], here, and gamma in (0, 1):

    P(K = k) ~ (1 - gamma)^k (eta (eta + 1) ... (eta + k - 1)) / k!,    k = 1, 2, ...

eta = 0 is the logarithmic distribution, eta = 1 the geometric one. With these shapes one trial is the likeliest.

The cost. Let P be the distribution of a trial's output, and Q that without the record. With f(x) = E x^K and F the
probability of a worse output (equal scores are told apart by chance), the best has the density p f'(F_P), and

    f'(x) ~ (1 - (1 - gamma) x)^-(1 + eta) <= f'(1) = E K.

If a trial costs what a Gaussian release with mu does, an output at least as good, of probability t without the record,
has at least s(t) = Phi(Phi^-1(t) - mu) with it. So f'(F_P) / f'(F_Q) <= e^c with

    c = (1 + eta) max_t log((gamma + (1 - gamma) t) / (gamma + (1 - gamma) s(t))),

and with positive parts p f'(F_P) - e^epsilon q f'(F_Q) <= E K (p - e^(epsilon - c) q). The same holds with whatever is
released before or after. So a selection costs what one trial does, at delta / E K, and c more:

    delta(epsilon) <= E K delta_trial(epsilon - c).

Theorem 2 of Papernot and Steinke follows from the same inequalities by Renyi divergences, which are less tight; compare
Koskela, Redberg and Wang 2024.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from fedfair.accounting.events import Release
from fedfair.mechanisms.randomness import Source, random_bits, uniform

_LEAST_MASS = 2.0**-60  # below it, nothing is left to draw from, but for a probability of less than 1e-15
_LEAST_GAMMA = 1e-9
_REACH, _CELLS = 12.0, 2**17  # of the grid: standard deviations beyond which nothing is, and its cells


class Selection(NamedTuple):
    """A release: the best of a random number of trials, each of which costs at most what one Gaussian release does.

    Attributes:
        multiplier: Noise multiplier of a Gaussian release of all records that costs as much as a trial, or more.
        mean: Expected number of trials, above 1.
        shape: Shape eta of their number's distribution, above -1 and at most 1.
    """

    multiplier: float
    mean: float
    shape: float = 1.0

    @property
    def rate(self) -> float:
        """Sampling rate of a record in a trial."""
        return 1.0


Charged = Release | Selection
"""What a record can be charged for."""

Charges = Mapping[Release, int] | Mapping[Charged, int]
"""What a record is charged, and how often."""


def number_of_trials(mean: float, shape: float, source: Source) -> int:
    """Draw the number of trials, K: by inversion, from 53 random bits.

    Args:
        mean: Expected number, above 1.
        shape: Shape eta, above -1 and at most 1.
        source: Where random bits come from.
    """
    gamma = gamma_of(mean, shape)
    left, number, mass = float(uniform(random_bits(source, 1))[0]), 1, _of_one(gamma, shape)
    while left >= mass and mass > _LEAST_MASS:
        left, number, mass = left - mass, number + 1, mass * (1 - gamma) * (number + shape) / (number + 1)
    return number


def unfolded(releases: Charges, delta: float) -> tuple[dict[Release, int], float, float]:
    """Return plain releases and a delta, and the epsilon by which all releases cost more than these at that delta.

    Args:
        releases: Whatever a record is charged.
        delta: Delta of all together.
    """
    plain: Counter[Release] = Counter()
    extra = 0.0
    for release, count in releases.items():
        plain[Release(release.rate, release.multiplier)] += count
        if isinstance(release, Selection) and 0 < release.multiplier < math.inf:
            delta, extra = delta / release.mean**count, extra + count * most_gained(release)
    return plain, delta, extra


@lru_cache(maxsize=1024)
def most_gained(selection: Selection) -> float:
    """Return an upper bound on c, above it by less than 0.001: the largest of what it can be in each cell of a grid."""
    multiplier, mean, shape = selection
    gamma, mu = gamma_of(mean, shape), 1 / multiplier
    quantiles = np.linspace(-_REACH, mu + _REACH, _CELLS + 1)
    without, with_it = (gamma + (1 - gamma) * ndtr(at) for at in (quantiles[1:], quantiles[:-1] - mu))
    return float((1 + shape) * np.log(without / with_it).max())


def divergence(selection: Selection, order: float) -> float:
    """Return the Renyi divergence of a selection at an order above 1, which follows from the same inequalities."""
    return order / (2 * selection.multiplier**2) + math.log(selection.mean) / (order - 1) + most_gained(selection)


@lru_cache(maxsize=64)
def gamma_of(mean: float, shape: float) -> float:
    """Return the gamma that gives a number of trials its mean.

    Args:
        mean: Expected number, above 1.
        shape: Shape eta, above -1 and at most 1.

    Raises:
        ValueError: If there is no such distribution.
    """
    if not (-1 < shape <= 1 and 1 < mean < mean_of(_LEAST_GAMMA, shape)):
        raise ValueError(f"{mean:g} trials are expected, of a distribution of shape {shape:g}: take a number above 1, "
                         "but not a huge one, and a shape above -1 and at most 1, for example 10 and 1")
    from scipy.optimize import brentq  # here, since few ledgers hold a selection

    apart = brentq(lambda log: mean_of(math.exp(log), shape) - mean, math.log(_LEAST_GAMMA), -1e-9, xtol=1e-13)
    return math.exp(float(apart))


def mean_of(gamma: float, shape: float) -> float:
    """Return the expected number of trials.

    Args:
        gamma: Between 0 and 1.
        shape: Shape eta, above -1 and at most 1.
    """
    return _of_one(gamma, shape) / math.pow(gamma, 1 + shape)


def _of_one(gamma: float, shape: float) -> float:
    """Return the probability of one trial."""
    logarithm = -math.log(gamma)
    return (1 - gamma) / (logarithm if shape == 0 else math.expm1(shape * logarithm) / shape)
