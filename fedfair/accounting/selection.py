"""The best of a random number of trials, and what choosing it costs.

A trial reads all records, and ends with something that has a score. K is drawn, K trials are made, each with noise of
its own, and only the best of them is released: neither the others nor K (Liu and Talwar 2019; Papernot and Steinke
2022). K follows their truncated negative binomial distribution, with a shape eta in (-1, 1], here, and gamma in (0, 1):

    P(K = k) ~ (1 - gamma)^k (eta (eta + 1) ... (eta + k - 1)) / k!,    k = 1, 2, ...

eta = 0 is the logarithmic distribution, eta = 1 the geometric one. With these shapes one trial is the likeliest.

The cost. Let P be the distribution of a trial's output, and Q that without the record. With f(x) = E x^K and F the
probability of a worse output (equal scores are told apart by chance), the best has the density p f'(F_P), and

    f'(x) ~ (1 - (1 - gamma) x)^-(1 + eta) <= f'(1) = E K.

If a trial costs what a Gaussian release with mu does, outputs that are worse than one, of probability v without the
record, have at most u(v) = Phi(Phi^-1(v) + mu) with it. So with L = p / q, where equal scores are told apart by chance,

    p f'(F_P) - e^epsilon q f'(F_Q) <= q G(L),    G(L) = max_v (f'(u(v)) L - e^epsilon f'(v)), or 0 if that is more.

G is convex, and with e^epsilon only its scale changes: it is at most a sum of w_j (L - e^(epsilon - c_j)) with positive
parts and weights w_j that add up to E K (see `gained`). With whatever is released before or after, L is the ratio of
all of it. So a selection costs

    delta(epsilon) <= sum_j w_j delta_trial(epsilon - c_j)
                   <= E K delta_trial(epsilon - c),    c = max_v log(f'(u(v)) / f'(v)).

The second is simpler (see `unfolded`). The first is nearly the least that any proof can give: let the likeliest outputs
under P be good, those that come next worse, and all others better. At epsilon 1 and delta 1e-5, with ten trials
expected, trials that have .6 % less noise than is asked here then cost more than epsilon (1.6 % at epsilon .1; see
`tests/fedfair/accounting/test_selection.py`). Xiang et al. (arXiv 2402.13087) have smaller bounds for tuning: where any
function of the output may be the score, as here, none saves more than that.

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
from numpy.typing import NDArray
from scipy.special import ndtr

from fedfair.accounting.allocation import Allocation
from fedfair.accounting.events import Release
from fedfair.mechanisms.randomness import Source, random_bits, uniform

_LEAST_MASS = 2.0**-60  # below it, nothing is left to draw from, but for a probability of less than 1e-15
_LEAST_GAMMA = 1e-9
_REACH, _CELLS = 8.0, 2**17  # of the grid: standard deviations beyond which its last cells lie, and its cells
_CHORDS, _FARTHEST = 64, 6.0  # of G: ratios between which chords lie, and the last of them, in standard deviations


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


Charged = Release | Selection | Allocation
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
    """Return an upper bound on c, above it by less than 0.001."""
    with_it, without = _likelier(selection)
    return float(np.log(with_it / without).max())


@lru_cache(maxsize=1024)
def gained(selection: Selection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights w_j and gains c_j of the module's first bound on delta.

    G is no larger than its chords between `_CHORDS` ratios, and beyond the last of them no steeper than E K.

    Args:
        selection: A selection whose trials have a noise multiplier above 0.
    """
    with_it, without = _likelier(selection)
    ratios = np.exp(np.linspace(-most_gained(selection), _FARTHEST / selection.multiplier, _CHORDS))
    heights = np.array([max(float((with_it * ratio - without).max()), 0.0) for ratio in ratios])
    slopes = np.array([0.0, *np.diff(heights) / np.diff(ratios), selection.mean])
    return np.diff(slopes).clip(min=0), -np.log(ratios)


def _likelier(selection: Selection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return f'(u(v)) and f'(v) for cells that v can lie in: the most of the first, and the least of the second."""
    multiplier, mean, shape = selection
    gamma, mu = gamma_of(mean, shape), 1 / multiplier
    quantiles = np.array([-math.inf, *np.linspace(-_REACH, mu + _REACH, _CELLS - 1), math.inf])
    better = ndtr(-quantiles[1:]), ndtr(mu - quantiles[:-1])
    with_it, without = (mean * np.power(gamma / (gamma + (1 - gamma) * tail), 1 + shape) for tail in better)
    return with_it, without


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
