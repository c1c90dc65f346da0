"""Epsilon of Gaussian releases of all records, in closed form.

Without sampling, releases of noise multipliers s_j are together one Gaussian with mu^2 = sum_j s_j^-2, and

    delta(epsilon) = F(mu / 2 - epsilon / mu) - e^epsilon F(-mu / 2 - epsilon / mu),     F the normal distribution

exactly (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13).
"""

from __future__ import annotations

import math

_LARGEST = 20.0
_MARGIN = 1e-9  # by which what is returned is larger, beside the rounding of the formula


def compose(mu: float, delta: float) -> float:
    """Return an upper bound, above the exact epsilon by at most 2e-9 of it.

    Args:
        mu: Root of the sum of the multipliers' inverse squares, from 0 to 20; above that rounding would count.
        delta: Delta, strictly between 0 and 1.

    Raises:
        ValueError: For another mu.
    """
    if not 0 < mu <= _LARGEST:
        raise ValueError(f"mu is {mu}: take a number above 0, and at most {_LARGEST:g}")
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-12
    if _delta(low, mu) <= delta:
        return 0.0
    while high - low > _MARGIN * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(middle, mu) <= delta * (1 - _MARGIN) else (middle, high)
    return high * (1 + _MARGIN)


def can(mu: float) -> bool:
    """Return whether `compose` takes this mu."""
    return 0 < mu <= _LARGEST


def _delta(epsilon: float, mu: float) -> float:
    """Return delta at an epsilon."""
    from scipy.special import log_ndtr  # here, since it takes time to import

    above, below = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(above) * -math.expm1(min(below - above, 0.0))
