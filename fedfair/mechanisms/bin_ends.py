"""Where the bins of a number end: from noisy prefix sums over a public grid, and nothing else.

The sums are made to rise by least squares (isotonic regression), not by their running maximum, which one draw of noise
lifts for good. A cell that holds the share of a bin or more is a bin of its own, as the 0 of an amount, or each value
of a column of two. What is left is divided at equal shares; then more ends in the tail of amounts gain nothing. Bins
that hardly stand out of the noise are joined to a neighbour. Between two cells that are filled, a bin starts at the
roundest number.

Isotonic regression of noisy counts: Hay, Rastogi, Miklau and Suciu 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedfair.mechanisms.histograms import CELLS, ends

_STANDS_OUT = 1.0  # deviations of the noise of a prefix sum; by measurement, of .4 to 3

Counts = npt.NDArray[np.float64]


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
