"""How much noise a target epsilon needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import scipy

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.events import Release

_LEAST, _MOST = 0.05, 1e5  # noise multipliers between which a target is sought


def calibrate(releases: Callable[[float], Mapping[Release, int]], target: float, delta: float,
              accountant: Accountant = "pld") -> float:
    """The smallest noise multiplier (to 0.01 %) whose releases stay within `target` epsilon at `delta`.

    `releases(multiplier)` is all that one record will be charged, count queries included. Raises `ValueError` if no
    multiplier up to 100,000 is enough.
    """

    def excess(log_multiplier: float) -> float:
        """How far a noise multiplier's epsilon lies above the target."""
        return epsilon(releases(math.exp(log_multiplier)), delta, accountant) - target

    least, most = math.log(_LEAST), math.log(_MOST)
    low = high = 0.0
    while excess(high) > 0:
        if high == most:
            raise ValueError(f"target_epsilon {target} cannot be reached: even with a noise multiplier of {_MOST:g}, "
                             f"{excess(high) + target:.3g} is spent; allow more, take fewer steps, or more noise on "
                             "the counts")
        low, high = high, min(high + 1, most)
    while low == high or excess(low) <= 0:
        if low == least:
            return _LEAST
        low, high = max(low - 1, least), low
    found = scipy.optimize.brentq(excess, low, high, xtol=5e-5)
    while excess(found) > 0:
        found += 1e-5
    return math.exp(found)
