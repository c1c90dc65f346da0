"""Balls in bins: in every epoch each record is put into one of T steps, uniformly and independently of all others.

Each batch then has the records of one step, and every record is met exactly once in an epoch, as if batches had been
shuffled; but where a record lies says nothing of where others lie, which shuffling does not give (Chua et al. 2024,
"Balls-and-Bins Sampling for DP-SGD"; "random allocation" in Feldman and Shenfeld 2025, and in arXiv 2602.17284). The
number of records in a batch varies as in Poisson sampling. An epoch may be cut off after its first T' steps.

What an epoch costs. Let each step release a sum to which a record adds at most 1, with the noise N(0, s^2). Whatever is
chosen on the way, the outputs of an epoch follow, by functions that do not know the record, from T' numbers x_t with
noise N(0, s^2) each: without the record all have mean 0, with it the one of its step has mean 1. (Of a step in which it
adds r < 1, the output is r x_t, noise of variance (1 - r^2) s^2, and what others add.) The ratio of the densities is

    L = ((T - T') + Y_1 + ... + Y_T') / T,    Y_t = exp((2 x_t - 1) / (2 s^2)),

with independent lognormal Y_t of mean 1 without the record. Then

    delta(epsilon) = E (L - e^epsilon)+  where the record is removed,    E (1 - e^epsilon L)+  where it is added.

Both are means of convex functions of L. So they grow if Y_t, or a sum of some, is moved to neighbouring numbers of a
grid in such a way that its mean is kept: the result is an upper bound in both directions, also of epochs that are
composed. A number above the grid is split between its end and infinity, one below between its beginning and 0. Within
an epoch each pair of numbers is added by itself, not by a transform, so that small probabilities are exact, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from fedfair.accounting.fourier import Ratios, removal_and_addition, split

_CELLS = 1000  # of a grid, evenly spaced in the logarithm: twice as many change an epsilon by less than .1 %
_CUT = 1e-5  # of delta that each truncation may cost
_ROUNDING = 1e-9  # of any probability, which sums of a million numbers lose at most


@dataclass(frozen=True)
class Allocation:
    """An epoch of balls in bins: Gaussian releases, of which one is about the record.

    Attributes:
        bins: Number of steps that a record may be put into, T, at least 1.
        steps: Number of these steps that were made, T', from 0 to T.
        multiplier: Noise multiplier of a step, the least if they differ.

    Raises:
        ValueError: For an epoch of no steps, or one of which more steps were made than it has.

    Examples:
        >>> from fedfair.accounting.composition import epsilon
        >>> from fedfair.accounting.events import Release
        >>> round(epsilon({Allocation(bins=50, steps=50, multiplier=1.0): 3}, delta=1e-5), 2)
        1.44
        >>> round(epsilon({Release(rate=1 / 50, multiplier=1.0): 150}, delta=1e-5), 2)  # Poisson
        1.65
    """

    bins: int
    steps: int
    multiplier: float

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= self.bins or self.bins < 1:
            raise ValueError(f"an epoch has {self.bins} steps, of which {self.steps} were made: take at least 1, and "
                             "no more than it has")

    @property
    def rate(self) -> float:
        """Probability that a record is in one of the steps that were made.

        One release of the same multiplier on a Poisson sample of this rate costs at least as much as the epoch: by
        convexity, who is told in which of the steps a record would be learns no less.
        """
        return self.steps / self.bins


def composed(epochs: Mapping[Allocation, int], delta: float) -> list[tuple[Ratios, int]]:
    """Return a likelihood ratio that is at least as telling as each epoch's, and how often there was one.

    Args:
        epochs: How often each epoch was made.
        delta: Delta of all together, of which what is cut off costs a small part.
    """
    tail = _CUT * delta / sum(epochs.values())
    return [(_ratio(epoch, tail), count) for epoch, count in epochs.items()]


@lru_cache(maxsize=256)
def _ratio(epoch: Allocation, tail: float) -> Ratios:
    """Return L on a grid."""
    total, rest = _sum(epoch.multiplier, epoch.steps, tail), epoch.bins - epoch.steps
    lost = total.infinite + total.zero * rest  # a sum of 0 makes rest / T, which is moved to 0 and infinity
    return Ratios((total.values + rest) / epoch.bins, total.mass * (1 + _ROUNDING), total.zero, lost / epoch.bins)


@lru_cache(maxsize=64)
def _sum(multiplier: float, steps: int, tail: float) -> Ratios:
    """Return the sum of the Y_t of some steps, by doubling."""
    if steps == 1:
        return _single(multiplier, tail)
    half = _sum(multiplier, steps // 2, tail)
    doubled = _added(half, half, tail)
    return _added(doubled, _sum(multiplier, 1, tail), tail) if steps % 2 else doubled


def _single(multiplier: float, tail: float) -> Ratios:
    """Return Y_t on a grid."""
    interval = -2 * float(ndtri(tail)) / multiplier / _CELLS
    removal, addition = removal_and_addition(1.0, multiplier, interval, tail)
    values = np.exp(interval * (removal.first + np.arange(len(removal.mass))))
    return Ratios(values, addition.mass[::-1], addition.infinite, 2 * tail)  # of both ends, at most


def _added(one: Ratios, other: Ratios, tail: float) -> Ratios:
    """Return the sum of two independent numbers, on 0 and a grid that is evenly spaced in the logarithm."""
    sums = np.add.outer(np.append(0, one.values), np.append(0, other.values)).ravel()
    mass = np.multiply.outer(np.append(one.zero, one.mass), np.append(other.zero, other.mass)).ravel()
    least, most = np.log([one.values[0] + other.values[0], one.values[-1] + other.values[-1]])
    interval = (most - least) / (_CELLS - 1)
    with np.errstate(divide="ignore"):
        cell = np.clip(np.floor((np.log(sums) - least) / interval), -1, _CELLS - 2).astype(int) + 1
    grid = np.append(0, np.exp(least + interval * np.arange(_CELLS)))
    moved = split(sums, mass, grid, cell)
    return _trimmed(Ratios(grid[1:], moved[1:], float(moved[0]), one.infinite + other.infinite), tail)


def _trimmed(whole: Ratios, tail: float) -> Ratios:
    """Return the same number without the ends of its grid, as far as `tail` allows in relation to its mean."""
    values, mass = whole.values, whole.mass
    beyond = np.append(mass[:0:-1].cumsum()[::-1], 0)
    excess = np.append((mass * values)[:0:-1].cumsum()[::-1], 0) - beyond * values
    last = int(np.argmax(excess <= tail * (mass @ values)))
    first = min(int(np.argmax(mass.cumsum() > tail)), last)
    kept = mass[first:last + 1].copy()
    kept[-1] += beyond[last]
    to_first = mass[:first] * values[:first] / values[first]
    kept[0] += to_first.sum()
    return Ratios(values[first:last + 1], kept, whole.zero + float((mass[:first] - to_first).sum()),
                  whole.infinite + max(float(excess[last]), 0.0))
