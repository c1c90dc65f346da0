"""Renyi differential privacy of composed releases (Mironov et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from fedfair.accounting.events import Release
from fedfair.accounting.fourier import loss_at
from fedfair.accounting.knots import Floats, Mixture

ORDERS: Floats = np.array([1 + tenth / 10 for tenth in range(1, 100)] + [*range(11, 64), 128, 256, 512, 1024])
"""Orders over which an epsilon is minimised, those of dp-accounting."""

KNOT_RATIO = 1.003
"""Ratio of neighbouring knots in `knots.mixtures`: moments of high orders grow fast between them."""

_LARGE = 64.0  # orders from here on are integrated apart, over a longer range
_LITTLE = 0.5  # noise multipliers up to here have moments far enough from 1 to be summed
_TINY = 0.01  # below, an integral would need gigabytes for an epsilon of thousands
_REACH = 9.0  # standard deviations beyond the outcomes that matter
_SMALL = 1.0  # log moments below are computed from the moment's excess over 1
_FAR = 30.0  # log powers from here on are so large that nothing cancels, and may be infinite without their weights


def compose(mixtures: Sequence[Mixture], delta: float) -> float:
    """Return the epsilon at `delta` of all releases, by the conversion of Canonne et al. 2020."""
    return to_epsilon(ORDERS, total(mixtures), delta)


def compose_classic(mixtures: Sequence[Mixture], delta: float) -> float:
    """Return the epsilon at `delta` that the papers before 2020 print: min over whole orders a of RDP(a) plus
    log(1 / delta) / (a - 1) (Abadi et al. 2016, Theorem 2, with a = lambda + 1; Mironov 2017, Proposition 3).

    It is proved, too, and larger than that of `compose`, which subtracts log(a) / (a - 1) - log(1 - 1/a).
    """
    whole = ORDERS[np.floor(ORDERS) == ORDERS]
    return float(np.min(total(mixtures, tuple(whole)) + math.log(1 / delta) / (whole - 1)))


def total(mixtures: Sequence[Mixture], orders: tuple[float, ...] = tuple(ORDERS)) -> Floats:
    """Return the Renyi divergences of all releases together at `orders`."""
    return np.asarray(np.sum([_composed(mixture, orders) for mixture in mixtures], axis=0))


def to_epsilon(orders: Floats, divergences: Floats, delta: float) -> float:
    """Return the smallest epsilon at `delta` that divergences `[A]` at `orders` `[A]` above 1 give.

    A divergence D of order a gives D + log(1 - 1 / a) - log(a delta) / (a - 1) (Canonne et al. 2020, Proposition 12).
    It gives 0 where delta is at least sqrt(1 - e^-D), which no total variation distance exceeds: D is at least the
    Kullback-Leibler divergence (Bretagnolle and Huber 1979).
    """
    given = [divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
             for order, divergence in zip(orders.tolist(), divergences.tolist(), strict=True)]
    least = np.where(delta**2 + np.expm1(-divergences) > 0, 0.0, given).min()
    return float(np.maximum(least, 0.0))  # not max: what is no number must not come out as 0


def to_divergence(order: float, epsilon: float, delta: float) -> float:
    """Return the divergence at one order that gives `epsilon` at `delta`: the inverse of `to_epsilon` above 0.

    Negative if this order gives no epsilon so small.
    """
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


@lru_cache(maxsize=50_000)
def divergences(release: Release, orders: tuple[float, ...] = tuple(ORDERS)) -> Floats:
    """Return the Renyi divergences of one release at `orders`, the larger of both directions of add-or-remove-one.

    That is the divergence of (1 - q) N(0, s^2) + q N(1, s^2) from N(0, s^2) (Mironov et al. 2019, Theorem 5), with the
    rate q and the multiplier s.
    """
    rate, multiplier = release
    if rate == 1:
        return np.array(orders) / (2 * multiplier**2)
    if multiplier < _TINY:
        return np.array([_chord(rate, multiplier, order) / (order - 1) for order in orders])
    summed = [order for order in orders if order == int(order) and multiplier <= _LITTLE]
    logs = {order: _summed(rate, multiplier, int(order)) for order in summed}
    for large in (False, True):
        alike = [order for order in orders if order not in logs and (order >= _LARGE) == large]
        logs.update(zip(alike, _integrated(rate, multiplier, np.array(alike)), strict=True))
    return np.array([logs[order] / (order - 1) for order in orders])


def _integrated(rate: float, multiplier: float, orders: Floats) -> Floats:
    """Return log E exp(a loss(x)) for x ~ N(0, s^2) at every order a, by the trapezoidal rule: `[A]`.

    The integrand is analytic within pi s^2 of the real line, so the error falls exponentially with the number of
    points. Where a moment is close to 1, its excess over 1 is E(r^a - 1 - a (r - 1)), r the density ratio of mean 1: a
    sum of positive numbers. Far out, only the products of powers and weights are finite.
    """
    width = min(multiplier / 8, multiplier**2 / 4)
    outcomes = np.arange(-_REACH * multiplier, orders.max(initial=0) + _REACH * multiplier, width)
    losses = loss_at(outcomes, rate, multiplier)
    weights = np.log(width / multiplier) - (outcomes / multiplier) ** 2 / 2 - np.log(2 * np.pi) / 2
    logs = np.asarray(logsumexp(orders[:, None] * losses + weights, axis=1))
    small = logs < _SMALL
    a = orders[small, None]
    powers = a * losses
    with np.errstate(over="ignore", invalid="ignore"):  # in the expression that is not taken
        near = np.exp(weights) * (np.expm1(powers) - a * np.expm1(losses))
        far = np.exp(weights + powers) - a * np.exp(weights + losses) + (a - 1) * np.exp(weights)
    logs[small] = np.log1p(np.where(powers < _FAR, near, far).sum(axis=1))
    return logs


def _summed(rate: float, multiplier: float, order: int) -> float:
    """Return the same for an integer order, by the binomial theorem (Mironov et al. 2019, section 3.3)."""
    k = np.arange(order + 1)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = binomial + k * np.log(rate) + (order - k) * np.log1p(-rate) + (k * k - k) / (2 * multiplier**2)
    return float(logsumexp(terms))


def _chord(rate: float, multiplier: float, order: float) -> float:
    """Return an upper bound on the same, exact for an integer order.

    Log moments are convex in the order: between integers they lie below the chord. At order 1 they are 0.
    """
    below = int(order)
    least = _summed(rate, multiplier, below) if below > 1 else 0.0
    return least if order == below else least + (order - below) * (_summed(rate, multiplier, below + 1) - least)


def _composed(mixture: Mixture, orders: tuple[float, ...]) -> Floats:
    """Return the divergences of a mixture's releases together, from its knots' moments exp((order - 1) divergence)."""
    less_one = np.array(orders) - 1
    logs = np.array([divergences(Release(mixture.rate, float(knot)), orders) for knot in mixture.knots]) * less_one
    lower, upper = logs[mixture.lower], logs[mixture.upper]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.log(mixture.weight)[:, None], np.log1p(-mixture.weight)[:, None]
        moments = np.where(mixture.weight[:, None] < 1, np.logaddexp(weight[0] + lower, weight[1] + upper), lower)
    return np.asarray(mixture.times @ moments / less_one)
