"""How a fit divides its epsilon: the kinds of columns cost every record, then each part of the split costs its own.

All releases are Gaussian and read all records of a part, so they add up by mu^2, mu = 1 / noise multiplier (Dong, Roth
and Su 2022): no sampling is involved, and nothing is lost by composition.

How many features a table of some size can bear: the noise of second moments against what they are.

The noise on S, `[d, d]`, is a matrix of spectral norm s sqrt(2 d); the eigenvalues of S are n / d on average. So the
noise is small where n is large beside s d^1.5 (`docs/moments.md`). The factor is what made-up and published tables
bear without losing a hundredth of accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from fedfair.accounting import Accountant, Release, calibrate, epsilon
from fedfair.moments.sums import SENSITIVITY
from strategies.server.releases.preprocessing import SHARE_OF_DELTA

_MOST = 1e-6
"""Delta is at most this."""

OF_KINDS = 0.02
"""Share of mu^2 for the kinds of columns."""


class Budget(NamedTuple):
    """What each release may cost.

    Attributes:
        kinds: Noise multiplier of the counts by which kinds of columns are told; None if all are known.
        training: Epsilon of what training records are asked beside: preprocessing and moments.
        figures: Epsilon of what a held-out record is asked beside.
    """

    kinds: float | None
    training: float
    figures: float

    @property
    def released(self) -> Release | None:
        """The release of the kinds of columns."""
        return None if self.kinds is None else Release(1.0, self.kinds)


def default_delta(rows: int) -> float:
    """Return delta for a table: 1 over ten times its number of rows, which is public, but at most 1e-6.

    Args:
        rows: Number of rows.
    """
    return min(_MOST, 1 / (10 * rows))


def divided(total: float, delta: float, accountant: Accountant, has_unknown: bool) -> Budget:
    """Divide an epsilon at delta.

    Args:
        total: Epsilon that any record is kept within.
        delta: Delta of it.
        accountant: How releases are composed.
        has_unknown: Whether kinds of columns are to be told.
    """
    if not has_unknown:
        return Budget(None, total, total)
    left = (1 - SHARE_OF_DELTA) * delta  # the rest is for categories of single records
    least = calibrate(lambda m: {Release(1.0, m): 1}, total, left, accountant)
    kinds = least * OF_KINDS**-0.5
    rest = least * (1 - OF_KINDS) ** -0.5
    apart = epsilon({Release(1.0, rest): 1}, left, accountant)
    return Budget(kinds, apart, apart)


FEWEST_BINS, MOST_BINS = 4, 10
_ENOUGH, _AMPLE = 1.2, 3.0  # from which on noise costs little, and hardly anything
_CATEGORIES = 4  # of a column, about, before they are known


class Needed(NamedTuple):
    """What would be enough: as many training records at this epsilon, or this epsilon with the records there are."""

    records: int
    epsilon: float


def bins_for(records: int, numbers: int, others: int, deviation: float) -> int:
    """Return the number of bins of each number, by public figures alone.

    Args:
        records: Number of training records n.
        numbers: Number of columns of numbers.
        others: Number of columns of categories.
        deviation: Standard deviation s of the noise on the sums.
    """
    width = (math.sqrt(2) * records / (_AMPLE * deviation)) ** (2 / 3)
    wanted = int((width - 1 - _CATEGORIES * others) / max(numbers, 1))
    return min(max(wanted, FEWEST_BINS), MOST_BINS)


def multiplier_of(budget: float, delta: float, accountant: Accountant) -> float:
    """Return the noise multiplier of moments that take all of an epsilon.

    Args:
        budget: The epsilon.
        delta: Its delta.
        accountant: How releases are composed.
    """
    return calibrate(lambda m: {Release(1.0, m): 1}, budget, delta, accountant)


def needed(records: int, width: int, multiplier: float, cost: Callable[[float], float]) -> Needed | None:
    """Return what would be enough for as many features; None if there is enough.

    Args:
        records: Number of training records n.
        width: Number of features d.
        multiplier: Noise multiplier of the moments.
        cost: From a noise multiplier to epsilon.
    """
    least = _ENOUGH * SENSITIVITY * multiplier * width**1.5 / math.sqrt(2)
    if records >= least:
        return None
    return Needed(math.ceil(least), cost(multiplier * records / least))
