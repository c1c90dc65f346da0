"""Private histograms of a column: a public grid, prefix sums with little noise, means and ends of bins that follow.

The grid is for numbers of any size, so that a histogram of a column needs no range. Every power of two from 2^-10 to
2^40 has 256 cells of equal width, so that years are in fours and amounts exact to .4 %; numbers nearer to zero share
one cell, and numbers further away are in the last. 16 times as many cells as 16 a power of two cost 1.26 times the
noise. Dwork and Lei 2009 look for a range by powers of two in the same way.

Prefix sums carry little noise by the factors of Fichtenberger, Henzinger and Upadhyay 2023, "Constant matters". All n
prefix sums of counts h are A h, with A the lower triangle of ones. A = C C, where C is the lower triangular Toeplitz
matrix of the coefficients of (1 - x)^(-1/2). One record adds 1 to one count, so C h moves by at most the norm of C's
first column, and C h + z, z Gaussian relative to it, is private. Applying the inverse of C is post-processing:

    h + C^-1 z

has the prefix sums A h + C z. Their noise grows with the logarithm of n, not with its square root. Both products are
convolutions, by fast Fourier transform: its rounding errors are some 1e-12 of the largest count.

Mean and deviation of a column follow from its noisy counts, and where its bins end (`bin_ends`) from the prefix sums
alone. These are made to rise by least squares (isotonic regression), not by their running maximum, which one draw of
noise lifts for good. A cell that holds the share of a bin or more is a bin of its own, as the 0 of an amount, or each
value of a column of two. What is left is divided at equal shares; then more ends in the tail of amounts gain nothing.
Bins that hardly stand out of the noise are joined to a neighbour. Between two cells that are filled, a bin starts at
the roundest number.

Isotonic regression of noisy counts: Hay, Rastogi, Miklau and Suciu 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedfair.mechanisms import noise as noises
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import Source

_LOW, _HIGH, _STEPS = -10, 40, 256
_POSITIVE = (_HIGH - _LOW) * _STEPS

CELLS = 2 * _POSITIVE + 1
"""Number of cells, in the order of the numbers that they hold."""

_STANDS_OUT = 1.0  # deviations of the noise of a prefix sum; by measurement, of .4 to 3
Counts = npt.NDArray[np.float64]


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


def bin_ends(below: Tensor, bins: int, deviation: float) -> tuple[float, ...]:
    """Return ends between bins, rising; none where all numbers are in one.

    Args:
        below: Noisy numbers of records up to each cell of the grid, `[CELLS]`.
        bins: Number of bins that are wanted, at least 2; they are fewer where values are few or noise is large, and may
            be a few more beside heavy values.
        deviation: Largest standard deviation of the noise on a prefix sum.

    Examples:
        >>> import torch
        >>> from fedfair.mechanisms.histograms import CELLS, cells
        >>> ages = torch.tensor([*range(20, 60)] * 10, dtype=torch.float64)
        >>> below = torch.bincount(cells(ages), minlength=CELLS).cumsum(0).double()
        >>> bin_ends(below, bins=4, deviation=1.0)
        (30.0, 40.0, 50.0)
    """
    counts = rising_counts(below)
    least = max(min(_STANDS_OUT * deviation, counts.sum() / (2 * bins)), 1.0)
    heavy = np.flatnonzero(counts >= max(counts.sum() / bins, least))
    cells = {0, *heavy.tolist(), *(heavy + 1).tolist(), *(_quantiles(counts, heavy, bins) + 1).tolist()}
    starts = _joined(counts, sorted(cells - {len(counts)}), least)
    filled = np.flatnonzero(counts)
    return tuple(_roundest(*_gap(filled, start)) for start in starts[1:])


def rising_counts(below: Tensor) -> Counts:
    """Return numbers of records by cell, `[CELLS]`, none negative, whose prefix sums are nearest to noisy ones.

    Args:
        below: Noisy numbers of records up to each cell, `[CELLS]`.
    """
    from scipy.optimize import isotonic_regression  # here, since it takes time to import

    rising = np.maximum(isotonic_regression(below.numpy()).x, 0.0)
    return np.asarray(np.diff(rising, prepend=0.0), dtype=np.float64)


def _quantiles(counts: Counts, heavy: npt.NDArray[np.int64], bins: int) -> npt.NDArray[np.int64]:
    """Return the last cells of bins with equal shares of what heavy cells leave."""
    left = counts.copy()
    left[heavy] = 0.0
    number = max(bins - len(heavy), 2)
    return np.asarray(np.searchsorted(left.cumsum(), np.arange(1, number) / number * left.sum()), dtype=np.int64)


def _joined(counts: Counts, starts: Sequence[int], least: float) -> list[int]:
    """Return the first cells of bins of which each holds at least so many records, or of a single bin."""
    sums, kept = np.concatenate([[0.0], counts.cumsum()]), [*starts]
    while len(kept) > 1:
        held = [float(sums[high] - sums[low]) for low, high in pairwise([*kept, len(counts)])]
        smallest = min(range(len(held)), key=held.__getitem__)
        if held[smallest] >= least:
            break
        goes_left = smallest == len(held) - 1 or (smallest > 0 and held[smallest - 1] <= held[smallest + 1])
        del kept[smallest if goes_left else smallest + 1]
    return kept


def _gap(filled: npt.NDArray[np.int64], start: int) -> tuple[float, float]:
    """Return between which numbers a bin may start, of those cells that are filled: after one, and up to the next.

    A cell of negative numbers holds the end that is nearer to zero, which a bin starts after.
    """
    after = int(np.searchsorted(filled, start))
    before, high = int(filled[after - 1]), ends(int(filled[after]))[0]
    low = ends(before)[1]
    return (math.nextafter(low, math.inf) if before < CELLS // 2 else low), high


def _roundest(low: float, high: float) -> float:
    """Return the number from `low` to `high` that has the fewest digits, as a person would have written it."""
    for power in range(13, -11, -1):
        rounded = math.ceil(low / 10.0**power) * 10.0**power if power >= 0 else (
            math.ceil(low * 10.0**-power) / 10.0**-power)
        if low <= rounded <= high:
            return rounded
    return low
