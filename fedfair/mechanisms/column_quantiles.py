"""What noisy counts of a column's numbers by cell (`float_grid`) tell beside its range: post-processing."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.mechanisms import float_grid


def edges(below: Tensor, total: int, bins: int, ends: tuple[float, float]) -> tuple[float, ...]:
    """Return ends between bins that hold about equally many records, rising, inside a range.

    Args:
        below: Noisy numbers of records up to each cell, `[CELLS]`.
        total: Public number of records.
        bins: Number of bins, at least 2.
        ends: Smallest and largest number of the range.
    """
    wanted = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1] * total
    rising = below.cummax(0).values  # the noise may let them fall
    cells = torch.searchsorted(rising, wanted).clamp(max=float_grid.CELLS - 1)
    found = sorted({float_grid.ends(int(cell))[1] for cell in cells})
    return tuple(end for end in found if ends[0] < end < ends[1])


def mean_and_deviation(below: Tensor, ends: tuple[float, float]) -> tuple[float, float]:
    """Return mean and standard deviation of the numbers inside a range, by the middles of cells.

    Args:
        below: Noisy numbers of records up to each cell, `[CELLS]`.
        ends: Smallest and largest number of the range.
    """
    first, last = (int(float_grid.cells(torch.tensor([end], dtype=torch.float64))) for end in ends)
    rising = below.cummax(0).values
    counts = rising.diff(prepend=rising.new_zeros(1))[first:last + 1].clamp(min=0)
    middles = counts.new_tensor([sum(float_grid.ends(cell)) / 2 for cell in range(first, last + 1)])
    shares = counts / counts.sum().clamp(min=1.0)
    mean = float(shares @ middles)
    deviation = float((shares @ (middles - mean) ** 2).sqrt())
    return mean, deviation if deviation > 0 else (ends[1] - ends[0]) / 2
