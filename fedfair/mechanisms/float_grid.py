"""A public grid for numbers of any size, so that a histogram of a column needs no range.

Every power of two from 2^-10 to 2^40 has 16 cells of equal width; numbers nearer to zero share one cell, and numbers
further away are in the last. Dwork and Lei 2009 look for a range by powers of two in the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
