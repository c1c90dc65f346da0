"""The discrete Gaussian on the integers, sampled exactly: Canonne, Kamath and Steinke 2020, Algorithms 1 to 3.

P(y) is proportional to exp(-y^2 / (2 s^2)) for integers y, with s = 2^40. Every decision is taken as exact arithmetic
would take it. Most are settled in floating point, where the first 53 bits of a uniform number lie further from the
probability that they are compared with than the rounding errors can reach; the rest, about one in 2^47, by rational
bounds on the exponential and as many further bits as it takes.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedfair.mechanisms.randomness import Source, random_bits, uniform

SCALE_BITS = 40
SCALE = 1 << SCALE_BITS
"""s. A power of two, so that y / s is exact in floating point for all |y| < 2^53."""

_DOUBT = 2.0**-48  # far more than the errors of a product, an exponential (a few ulp) and 53 bits together

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def discrete_gaussian(count: int, source: Source) -> Integers:
    """`[count]` independent draws with parameter s = `SCALE`; their standard deviation is s to 1 part in 10^15."""
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        candidates = _discrete_laplace(2 * (count - len(drawn)) + 16, source)
        accepted = _bernoulli_exp((np.abs(candidates) - SCALE) / SCALE, 2, source)
        drawn = np.concatenate([drawn, candidates[accepted]])
    return drawn[:count]


def _discrete_laplace(at_most: int, source: Source) -> Integers:
    """Up to `at_most` draws with P(y) proportional to exp(-|y| / s): Algorithm 2 with t = s.

    |y| = u + s v, u uniform below s and kept with probability exp(-u / s), v the number of successes before the first
    failure at probability exp(-1); one of the two zeros is dropped.
    """
    bits = random_bits(source, at_most)
    u, negative = (bits >> np.uint64(64 - SCALE_BITS)).astype(np.int64), bits & np.uint64(1) == 1
    kept = _bernoulli_exp(u / SCALE, 1, source)
    u, negative = u[kept], negative[kept]
    size = u + SCALE * _successes(len(u), source)
    signed: Integers = np.where(negative, -size, size)
    once: npt.NDArray[np.bool_] = ~negative | (size > 0)
    return signed[once]


def _successes(count: int, source: Source) -> Integers:
    """`[count]` numbers of successes before the first failure, each success with probability exp(-1)."""
    found, going = np.zeros(count, dtype=np.int64), np.arange(count)
    while len(going):
        going = going[_bernoulli_exp(np.ones(len(going)), 1, source)]
        found[going] += 1
    return found


def _bernoulli_exp(z: Floats, power: int, source: Source) -> npt.NDArray[np.bool_]:
    """True with probability exp(-z^power / power), exactly, for `z` taken as the rational numbers that they are."""
    first = uniform(random_bits(source, len(z)))
    probability = np.exp(-(z**power) / power)
    accepted: npt.NDArray[np.bool_] = first < probability
    for i in np.flatnonzero(np.abs(first - probability) < _DOUBT):
        accepted[i] = _is_below(Fraction(float(first[i])), Fraction(float(z[i])) ** power / power, source)
    return accepted


def _is_below(first: Fraction, exponent: Fraction, source: Source) -> bool:
    """Whether a uniform real number whose first 53 bits are `first` lies below exp(-exponent), for exponent < 1000.

    Both are narrowed until they part: the number by 64 more bits, the exponential by 20 more digits a turn.
    """
    width, digits = Fraction(1, 2**53), 40
    while True:
        with localcontext(prec=digits):
            value = Fraction((Decimal(-exponent.numerator) / Decimal(exponent.denominator)).exp())
        error = value * Fraction(1, 10 ** (digits - 5))  # of the quotient, times its size, and of the exponential
        if first + width <= value - error:
            return True
        if first >= value + error:
            return False
        width /= 2**64
        first += int(random_bits(source, 1)[0]) * width
        digits += 20
