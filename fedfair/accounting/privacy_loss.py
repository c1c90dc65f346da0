"""The privacy loss of one Poisson-sampled Gaussian release on a grid, never below the true one.

The mass between two grid points is moved to these two points, and its probability under both neighbouring data sets is
kept ("connect the dots", Doroshenko et al. 2022, section 3). The result dominates the release, with an error of second
order in the grid's interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fedfair.accounting.knots import Floats


class Loss(NamedTuple):
    """Probabilities `mass` `[m]` of the losses `first * interval`, `(first + 1) * interval`, ...; and of `infinite`."""

    first: int
    mass: Floats
    infinite: float


def removal_and_addition(rate: float, multiplier: float, interval: float, tail: float) -> tuple[Loss, Loss]:
    """Return the losses when a record is removed, and when it is added.

    Removal compares (1 - q) N(0, s^2) + q N(1, s^2) with N(0, s^2), addition the other way round; q is the rate, s the
    multiplier. `tail` is the probability that may count as an infinite loss.
    """
    reach = -ndtri(tail)
    ends = loss_at(np.array([-reach * multiplier, 1 + reach * multiplier]), rate, multiplier) / interval
    steps = np.arange(int(np.floor(ends[0])), int(np.ceil(ends[1])) + 1)
    losses: Floats = np.asarray(steps * interval, dtype=float)
    edges = _outcome(losses, rate, multiplier)
    below, plain, above = _masses(edges / multiplier)
    below_1, shifted, above_1 = _masses((edges - 1) / multiplier)
    mixed = (1 - rate) * plain + rate * shifted
    left = np.clip((plain * np.exp(losses[:-1]) - mixed * np.exp(-interval)) / -np.expm1(-interval), 0, mixed)
    dots = np.append(left, 0) + np.append(0, mixed - left)
    removal, addition = dots.copy(), dots * np.exp(-losses)
    removal[0] += (1 - rate) * below + rate * below_1
    addition[-1] += above
    return (Loss(int(steps[0]), removal, float((1 - rate) * above + rate * above_1)),
            Loss(-int(steps[-1]), addition[::-1], float(below)))


def loss_at(outcome: Floats, rate: float, multiplier: float) -> Floats:
    """Return the log density ratio at an outcome: log(1 - q + q exp((2x - 1) / (2 s^2)))."""
    gaussian = (2 * outcome - 1) / (2 * multiplier**2)
    return gaussian if rate == 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + gaussian)


def _outcome(loss: Floats, rate: float, multiplier: float) -> Floats:
    """Return the outcome that has a loss; minus infinity for a loss below every outcome's."""
    if rate == 1:
        return multiplier**2 * loss + 0.5
    with np.errstate(divide="ignore", over="ignore"):
        excess = np.where(loss > 30, loss, np.log(np.maximum(np.expm1(np.minimum(loss, 30)) + rate, 0)))
    return np.asarray(multiplier**2 * (excess - np.log(rate)) + 0.5)


def _masses(edges: Floats) -> tuple[float, Floats, float]:
    """Return the standard normal probability below, between and above ascending edges, exact in both tails."""
    lower, upper = ndtr(edges), ndtr(-edges)
    right = edges[:-1] > 0
    return float(lower[0]), np.where(right, upper[:-1] - upper[1:], np.diff(lower)), float(upper[-1])
