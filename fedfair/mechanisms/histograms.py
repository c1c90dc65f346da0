"""Private histograms of a column: a public grid, prefix sums with little noise, and the quantiles that follow.

A public grid for numbers of any size, so that a histogram of a column needs no range.

Every power of two from 2^-10 to 2^40 has 16 cells of equal width; numbers nearer to zero share one cell, and numbers
further away are in the last. Dwork and Lei 2009 look for a range by powers of two in the same way.

Private counts whose prefix sums carry little noise: Fichtenberger, Henzinger and Upadhyay 2023, "Constant matters".

All n prefix sums of counts h are A h, with A the lower triangle of ones. A = C C, where C is the lower triangular
Toeplitz matrix of the coefficients of (1 - x)^(-1/2). One record adds 1 to one count, so C h moves by at most the norm
of C's first column, and C h + z, z Gaussian relative to it, is private. Applying the inverse of C is post-processing:

    h + C^-1 z

has the prefix sums A h + C z. Their noise grows with the logarithm of n, not with its square root.

What noisy counts of a column's numbers by cell (`float_grid`) tell beside its range: post-processing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedfair.mechanisms import noise as noises
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import Source

_LOW, _HIGH, _STEPS = -10, 40, 16
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


def edges(below: Tensor, total: int, bins: int, limits: tuple[float, float]) -> tuple[float, ...]:
    """Return ends between bins that hold about equally many records, rising, inside a range.

    Args:
        below: Noisy numbers of records up to each cell, `[CELLS]`.
        total: Public number of records.
        bins: Number of bins, at least 2.
        limits: Smallest and largest number of the range.
    """
    wanted = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1] * total
    rising = below.cummax(0).values  # the noise may let them fall
    reached = torch.searchsorted(rising, wanted).clamp(max=CELLS - 1)
    found = sorted({ends(int(cell))[1] for cell in reached})
    return tuple(end for end in found if limits[0] < end < limits[1])


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
