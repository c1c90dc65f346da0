"""The discrete Gaussian on the integers, sampled exactly: Canonne, Kamath and Steinke 2020, Algorithms 1 to 3.

P(y) is proportional to exp(-y^2 / (2 s^2)) for integers y, with s = 2^40. Every decision is the one that exact
arithmetic would take. Most are made in floating point, where the first 53 bits of a uniform number are further from the
probability that they are compared with than the rounding errors can reach. The rest, about one in 2^47, are made by
rational bounds on the exponential and as many further bits as it takes.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedfair.mechanisms.randomness import Source, random_bits, uniform

SCALE_BITS = 40
SCALE = 1 << SCALE_BITS
"""The parameter s, a power of two: y / s is exact in floating point for all |y| < 2^53."""

_DOUBT = 2.0**-48  # far more than the errors of a product, an exponential (a few ulp) and 53 bits together

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def discrete_gaussian(count: int, source: Source) -> Integers:
    """Draw `[count]` independent integers with parameter s = `SCALE`; their standard deviation is s, to 1 part in
    10^15.
    """
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        candidates = _discrete_laplace(2 * (count - len(drawn)) + 16, source)
        accepted = _bernoulli_exp((np.abs(candidates) - SCALE) / SCALE, 2, source)
        drawn = np.concatenate([drawn, candidates[accepted]])
    return drawn[:count]


def _discrete_laplace(at_most: int, source: Source) -> Integers:
    """Draw up to `at_most` integers with P(y) proportional to exp(-|y| / s): Algorithm 2 with t = s.

    |y| = u + s v. Here u is uniform below s and kept with probability exp(-u / s), and v is the number of successes
    before the first failure, at probability exp(-1). One of the two zeros is dropped.
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
    """Draw `[count]` numbers of successes before the first failure; each success has the probability exp(-1)."""
    successes, going = np.zeros(count, dtype=np.int64), np.arange(count)
    while len(going):
        going = going[_bernoulli_exp(np.ones(len(going)), 1, source)]
        successes[going] += 1
    return successes


def _bernoulli_exp(z: Floats, power: int, source: Source) -> npt.NDArray[np.bool_]:
    """Draw True with probability exp(-z^power / power), exactly; each `z` stands for the rational number that it is."""
    first = uniform(random_bits(source, len(z)))
    probability = np.exp(-(z**power) / power)
    accepted: npt.NDArray[np.bool_] = first < probability
    for i in np.flatnonzero(np.abs(first - probability) < _DOUBT):
        accepted[i] = _is_below(Fraction(float(first[i])), Fraction(float(z[i])) ** power / power, source)
    return accepted


def _is_below(first: Fraction, exponent: Fraction, source: Source) -> bool:
    """Return whether a uniform real number with the first 53 bits `first` lies below exp(-exponent), exponent < 1000.

    Bounds on both are narrowed until they separate, each turn by 64 more bits of the number and 20 more digits of the
    exponential.
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


