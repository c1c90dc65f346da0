"""How the noise on V is shared: less of it on the difference between classes, more on the sums of groups.

The classifier depends on V through its contrast alone, the features of one class less those of the other over all
groups, which adds up the noise of all 2 K columns. So nodes mix the columns before noise is added. With the unit vector
u = (-1, 1, -1, 1, ...) / sqrt(2 K) over cells (group, class), V becomes A V, and is A^-1 of the noisy sums afterwards:

    A = sqrt(1/2) (I + (sqrt(1 + 2 K) - 1) u u'),        A' A = (I + g g') / 2     with g = sqrt(2 K) u

Every column of A has norm sqrt((1 + 1) / 2) = 1, so a record adds as much to A V as it does to V. With s the deviation
of the noise, that on sum_j c_j V_j has the variance 2 s^2 (|c|^2 - (c'g)^2 / (1 + 2 K)). On the contrast of two groups
that is 1.6 s^2 in place of 4 s^2, and on the sum of a group's features 4 s^2 in place of 2 s^2.

A strategy for a workload: Li et al. 2015, "The matrix mechanism".
"""

from __future__ import annotations

import math

from torch import Tensor

CLASSES = 2
"""Number of classes between which there is one contrast."""


def mixed(first: Tensor) -> Tensor:
    """Return A V, `[K, d, 2]`.

    Args:
        first: V, the sums of features by group and class, `[K, d, 2]`.

    Raises:
        ValueError: For another number of classes.
    """
    return math.sqrt(0.5) * (first + (math.sqrt(1 + 2 * len(first)) - 1) * along(first))


def unmixed(first: Tensor) -> Tensor:
    """Return V, `[K, d, 2]`, of A V.

    Args:
        first: A V, `[K, d, 2]`.

    Raises:
        ValueError: For another number of classes.
    """
    return math.sqrt(2.0) * (first + (1 / math.sqrt(1 + 2 * len(first)) - 1) * along(first))


def deviation(coefficients: Tensor, mixing: bool) -> float:
    """Return the standard deviation of the noise on sum_j c_j V_j, in units of that on a released number.

    Args:
        coefficients: c by group and class, `[K, C]`.
        mixing: Whether A V was released.
    """
    square = float(coefficients.square().sum())
    if not mixing:
        return math.sqrt(square)
    contrast = float((coefficients[:, 1] - coefficients[:, 0]).sum())
    return math.sqrt(2 * (square - contrast**2 / (1 + 2 * len(coefficients))))


def along(first: Tensor) -> Tensor:
    """Return the part of V along u, `[K, d, 2]`.

    Args:
        first: V, `[K, d, 2]`.

    Raises:
        ValueError: For another number of classes.
    """
    if first.shape[2] != CLASSES:
        raise ValueError(f"there are {first.shape[2]} classes, but only {CLASSES} have one contrast")
    difference = (first[:, :, 1] - first[:, :, 0]).sum(0) / (2 * len(first))
    return difference.unsqueeze(1) * first.new_tensor([-1.0, 1.0])
