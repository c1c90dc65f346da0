"""How much noise a target epsilon needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from scipy.optimize import brentq

from fedfair.accounting.composition import Accountant, Release, epsilon

_LEAST, _MOST = 0.05, 1e5  # noise multipliers between which a target is sought


def calibrate(releases: Callable[[float], Mapping[Release, int]], target: float, delta: float,
              accountant: Accountant = "pld") -> float:
    """The smallest noise multiplier (to 0.01 %) whose releases stay within `target` epsilon at `delta`.

    `releases(multiplier)` is all that one record will be charged, count queries included. Raises `ValueError` if no
    multiplier up to 100,000 is enough.
    """

    def excess(log_multiplier: float, by: Accountant = accountant) -> float:
        return epsilon(releases(math.exp(log_multiplier)), delta, by) - target

    if excess(math.log(_MOST)) > 0:
        reached = epsilon(releases(_MOST), delta, accountant)
        raise ValueError(f"target_epsilon {target} cannot be reached: even with a noise multiplier of {_MOST:g}, "
                         f"{reached:.3g} is spent; allow more, take fewer steps, or more noise on the counts")
    if excess(math.log(_LEAST), "rdp") <= 0:
        return _LEAST
    upper = math.log(_MOST)
    if excess(upper, "rdp") <= 0:  # its answer is close, from above, and quicker to find
        upper = brentq(excess, math.log(_LEAST), upper, args=("rdp",), xtol=1e-5)
    if accountant == "pld":
        lower = upper
        step = 0.1
        while lower > math.log(_LEAST) and excess(lower) <= 0:
            upper, lower, step = lower, lower - step, 2 * step
        upper = brentq(excess, lower, upper, xtol=5e-5) if lower < upper else upper
    while excess(upper) > 0:
        upper += 1e-5
    return math.exp(upper)
