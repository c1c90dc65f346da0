"""Private histograms of a column: a public grid, prefix sums with little noise, and means that follow.

A public grid for numbers of any size, so that a histogram of a column needs no range.

Every power of two from 2^-10 to 2^40 has 256 cells of equal width, so that years are in fours and amounts exact to
.4 %; numbers nearer to zero share one cell, and numbers further away are in the last. 16 times as many cells as 16 a
power of two cost 1.26 times the noise. Dwork and Lei 2009 look for a range by powers of two in the same way.

Private counts whose prefix sums carry little noise: Fichtenberger, Henzinger and Upadhyay 2023, "Constant matters".

All n prefix sums of counts h are A h, with A the lower triangle of ones. A = C C, where C is the lower triangular
Toeplitz matrix of the coefficients of (1 - x)^(-1/2). One record adds 1 to one count, so C h moves by at most the norm
of C's first column, and C h + z, z Gaussian relative to it, is private. Applying the inverse of C is post-processing:

    h + C^-1 z

has the prefix sums A h + C z. Their noise grows with the logarithm of n, not with its square root. Both products are
convolutions, by fast Fourier transform: its rounding errors are some 1e-12 of the largest count.

Mean and deviation of a column follow from its noisy counts; where its bins end, `bin_ends` says.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedfair.mechanisms import noise as noises
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import Source

_LOW, _HIGH, _STEPS = -10, 40, 256
_POSITIVE = (_HIGH - _LOW) * _STEPS

CELLS = 2 * _POSITIVE + 1
"""Number of cells, in the order of the numbers that they hold."""


def cells(numbers: Tensor) -> Tensor:
    """Return the cell of each finite number `[n]`: `[n]`, from 0 to `CELLS` - 1.

    Args:
        numbers: Finite numbers.
    """
    size = numbers.double().abs().clamp(max=2.0 ** (_HIGH + 1))
    mantissa, exponent = torch.frexp(size)  # size = mantissa 2^exponent, with mantissa from 1/2 to 1
    steps = (exponent - 1 - _LOW) * _STEPS + ((2 * mantissa - 1) * _STEPS).long()
    away = torch.where(size < 2.0**_LOW, 0, 1 + steps.clamp(0, _POSITIVE - 1))
    return _POSITIVE + torch.where(numbers < 0, -away, away)


def ends(cell: int) -> tuple[float, float]:
    """Return the smallest and the largest number of a cell; those beyond the grid count as its ends.

    Args:
        cell: Number of the cell, from 0 to `CELLS` - 1.
    """
    away = abs(cell - _POSITIVE) - 1
    if away < 0:
        return -(2.0**_LOW), 2.0**_LOW
    near, far = (2.0 ** (_LOW + at // _STEPS) * (1 + at % _STEPS / _STEPS) for at in (away, away + 1))
    return (near, far) if cell > _POSITIVE else (-far, -near)


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
    rooted = _times(counts, -0.5)
    return _times(noises.add_noise(noise, {"z": rooted}, deviation, source)["z"], 0.5)


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


def _times(counts: Tensor, power: float) -> Tensor:
    """Return the lower triangular Toeplitz matrix of (1 - x)^power times `counts` along the last dimension."""
    n = counts.shape[-1]
    length = 2 ** (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(counts.double().numpy(), length) * np.fft.rfft(_coefficients(n, power).numpy(), length)
    return torch.from_numpy(np.fft.irfft(spectrum, length)[..., :n].copy()).to(counts.dtype)


def mean_and_deviation(below: Tensor, limits: tuple[float, float]) -> tuple[float, float]:
    """Return mean and standard deviation of the numbers inside a range, by the middles of cells.

    Args:
        below: Noisy numbers of records up to each cell, `[CELLS]`.
        limits: Smallest and largest number of the range.
    """
    first, last = (int(cells(torch.tensor([end], dtype=torch.float64))) for end in limits)
    rising = below.cummax(0).values
    counts = rising.diff(prepend=rising.new_zeros(1))[first:last + 1].clamp(min=0)
    middles = counts.new_tensor([sum(ends(cell)) / 2 for cell in range(first, last + 1)])
    shares = counts / counts.sum().clamp(min=1.0)
    mean = float(shares @ middles)
    deviation = float((shares @ (middles - mean) ** 2).sqrt())
    return mean, deviation if deviation > 0 else (limits[1] - limits[0]) / 2
