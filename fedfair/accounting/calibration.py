"""Calibration: the noise that a target epsilon needs."""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.events import Release
from fedfair.accounting.figures import up
from fedfair.accounting.selection import Charges

_LEAST, _MOST = 0.05, 1e5  # the noise multipliers among which it is looked for


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

    least, most = math.log(_LEAST), math.log(_MOST)
    low = high = 0.0
    while excess(high) > 0:
        if high == most:
            raise ValueError(f"target_epsilon {target} cannot be reached: even with a noise multiplier of {_MOST:g}, "
                             f"{up(excess(high) + target, '.3g')} is spent; allow more, take fewer steps, "
                             "or more noise on the counts")
        low, high = high, min(high + 1, most)
    while low == high or excess(low) <= 0:
        if low == least:
            return _LEAST
        low, high = max(low - 1, least), low
    root = scipy.optimize.brentq(excess, low, high, xtol=5e-5)
    while excess(root) > 0:
        root += 1e-5
    return math.exp(root)
