"""How a fit divides its epsilon: the kinds of columns cost every record, then each part of the split costs its own.

All releases are Gaussian and read all records of a part, so they add up by mu^2, mu = 1 / noise multiplier (Dong, Roth
and Su 2022): no sampling is involved, and nothing is lost by composition.
"""

from __future__ import annotations

from typing import NamedTuple

from fedfair.accounting import Accountant, Release, calibrate, epsilon
from strategies.server.preprocessing import SHARE_OF_DELTA

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
