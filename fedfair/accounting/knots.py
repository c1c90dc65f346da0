"""Many distinct noise multipliers from few: each release lies between two knots, and a mixture of them dominates it.

Write H_s(e) for the hockey-stick divergence of the Gaussian mechanism with noise multiplier s at privacy loss e, and
mu = 1/s. Then H_s(e) = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) and dH/dmu = phi(mu/2 - e/mu), phi the normal
density. Take the total variation tau = H_s(0) = erf(mu / sqrt(8)) as the parameter instead of mu: then

    dH/dtau = phi(mu/2 - e/mu) / phi(mu/2) = exp(e/2 - e^2 / (2 mu^2)),

which grows with mu. So H(e) is convex in tau for every e and every mu, and for tau between tau_1 and tau_2 it lies
below the chord: with w = (tau - tau_2) / (tau_1 - tau_2),

    H_s(e) <= w H_{s_1}(e) + (1 - w) H_{s_2}(e)    for all e.

The right side is the divergence of "throw a coin of probability w, say how it fell, and release with s_1 or s_2".
Poisson sampling turns H(e) into q H(log(1 + (exp(e) - 1) / q)), and exchanging the neighbours into
1 - exp(e) + exp(e) H(-e) (Zhu et al. 2022, Propositions 28-30): both keep the inequality. Hence the mixture dominates
the release in either direction of add-or-remove-one, also under composition (Zhu et al. 2022, Theorem 10), and so do
its Renyi moments, which are integrals of H with positive weights, at every order above 1. The chord's error is of
second order in the distance of the knots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc

from fedfair.accounting.events import Release

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = TypeVar("Numbers", Floats, NDArray[np.complex128])

_FEW = 32  # distinct multipliers, at most, for each to be a knot


class Mixture(NamedTuple):
    """The releases at one sampling rate, each as a mixture of two of `knots` `[K]`, noise multipliers in ascending
    order: knot `lower` with probability `weight`, else knot `upper`, `times` times; all four are `[n]`.
    """

    rate: float
    knots: Floats
    lower: Integers
    upper: Integers
    weight: Floats
    times: Floats

    def mixed(self, values: Numbers) -> Numbers:
        """Mix, for each release, the values of its two knots: `[n, ...]` from `[K, ...]`."""
        weight = self.weight.reshape(-1, *(1,) * (values.ndim - 1))
        return weight * values[self.lower] + (1 - weight) * values[self.upper]

    def part(self, rows: slice) -> Mixture:
        """Return some of the releases."""
        return Mixture(self.rate, self.knots, self.lower[rows], self.upper[rows], self.weight[rows], self.times[rows])


def mixtures(releases: Mapping[Release, int], ratio: float) -> list[Mixture]:
    """Return a mixture for every sampling rate of the releases, whose multipliers are positive and finite.

    `ratio` is that of neighbouring knots, used if there are too many multipliers for each to be a knot.
    """
    table = np.array([(*release, count) for release, count in releases.items()])
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    parts = np.split(table, np.flatnonzero(np.diff(table[:, 0])) + 1)
    return [_mixture(float(part[0, 0]), part[:, 1], part[:, 2], np.log(ratio)) for part in parts]


def _mixture(rate: float, multipliers: Floats, counts: Floats, apart: float) -> Mixture:
    """See `mixtures`; the multipliers ascend, the logs of knots are `apart`."""
    each = np.arange(len(multipliers))
    if len(multipliers) <= _FEW:
        return Mixture(rate, multipliers, each, each, np.ones(len(each)), counts)
    cell = np.floor(np.log(multipliers) / apart).astype(int)
    used, index = np.unique(np.concatenate([cell, cell + 1]), return_inverse=True)
    lower, upper = index[each], index[len(each) + each]
    knots = np.exp(used * apart)
    span = _variation_between(knots[lower], knots[upper])
    weight = np.clip(_variation_between(multipliers, knots[upper]) / span, 0, 1)
    return Mixture(rate, knots, lower, upper, weight, counts)


def _variation_between(less: Floats, more: Floats) -> Floats:
    """Return tau(less) - tau(more), without cancellation where both are close to 1, and 0 where less > more."""
    x, y = 1 / (np.sqrt(8) * less), 1 / (np.sqrt(8) * more)
    return np.asarray(np.maximum(np.where(y > 1, erfc(y) - erfc(x), erf(x) - erf(y)), 0))
