"""Private counts whose prefix sums carry little noise: Fichtenberger, Henzinger and Upadhyay 2023, "Constant matters".

All n prefix sums of counts h are A h, with A the lower triangle of ones. A = C C, where C is the lower triangular
Toeplitz matrix of the coefficients of (1 - x)^(-1/2). One record adds 1 to one count, so C h moves by at most the norm
of C's first column, and C h + z, z Gaussian relative to it, is private. Applying the inverse of C is post-processing:

    h + C^-1 z

has the prefix sums A h + C z. Their noise grows with the logarithm of n, not with its square root.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedfair.mechanisms import noise as noises
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import Source


def sensitivity(cells: int) -> float:
    """Return how far one record can move C h, for `cells` counts: the norm of C's first column."""
    return float(_coefficients(cells, -0.5).norm())


def add_noise(noise: NoiseName, counts: Tensor, deviation: float, source: Source) -> Tensor:
    """Return `C^-1 (C counts + z)` along the last dimension, `[..., n]`, with independent z ~ N(0, deviation^2).

    A deviation of 0 returns the counts. The noise of several calls adds up to that of one call, whose deviation is the
    root of the sum of their squares.
    """
    if deviation == 0:
        return counts
    root, inverse = (_toeplitz(_coefficients(counts.shape[-1], power)).to(counts.dtype) for power in (-0.5, 0.5))
    return noises.add_noise(noise, {"z": counts @ root.T}, deviation, source)["z"] @ inverse.T


def largest_deviation(cells: int, multiplier: float) -> float:
    """Return the largest standard deviation of a prefix sum's noise, for z at `multiplier` times the sensitivity."""
    return multiplier * sensitivity(cells) ** 2


def margin(cells: int, multiplier: float, sums: int, failure: float) -> float:
    """Return a bound that the noise of all `sums` prefix sums stays below, except with a probability of `failure`."""
    quantile = math.sqrt(2) * float(torch.erfinv(torch.tensor(1 - failure / sums, dtype=torch.float64)))
    return quantile * largest_deviation(cells, multiplier)


def _coefficients(n: int, power: float) -> Tensor:
    """Return the first n coefficients of (1 - x)^power."""
    j = torch.arange(1, n, dtype=torch.float64)
    return torch.cat([torch.ones(1, dtype=torch.float64), ((j - 1 - power) / j).cumprod(0)])


def _toeplitz(column: Tensor) -> Tensor:
    """Return the lower triangular Toeplitz matrix with this first column."""
    n = len(column)
    below = torch.arange(n)[:, None] - torch.arange(n)
    return torch.where(below >= 0, column[below.clamp(min=0)], 0.0)
