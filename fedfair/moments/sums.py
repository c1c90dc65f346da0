"""The sums of one release: second moments of the features, and sums of features by group and class.

    S   = sum_i phi_i phi_i'                    [d, d], symmetric
    V_k = sum_{i: a_i = k} phi_i e(y_i)'        [d, C] for each group k of K

A record i has the features phi_i of norm at most 1, the group a_i and the class y_i. S travels as svec(S), its upper
triangle with off-diagonal entries times sqrt(2), so that |svec(phi phi')| = |phi|^2. A record changes (svec(S), V) by
(svec(phi phi'), phi in one column of one V_k), which is at most sqrt(1 + 1) long. With S_k for each group in place of S
the same holds, since a record is in one group.

Sufficient statistics with noise: Vu and Slavkovic 2009; Foulds et al. 2016; Wang 2018 (AdaSSP).

Of records whose features are ones, sums are numbers of records and of pairs, times what a one becomes.
A bounded row has the same number v in every place that is not 0, and a constant c behind them (`Bounding`); v depends
on how many ones it has, which is their number of columns unless a cell is missing or unknown. So sum phi phi' over rows
of m ones is the number of rows with a one in both of two places, times v^2, v c or c^2. Numbers are counted exactly, in
single precision a portion and in double precision over all: the sums do not depend on the order of records.

How the noise on V is shared: less of it on the difference between classes, more on the sums of groups.

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
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedfair.datasets.features.cells import Cells
from fedfair.datasets.features.encoding import number_of_ones, ones_of, value_of_one
from fedfair.gradients.kernels import sum_of_outer_products

SENSITIVITY = math.sqrt(2)
"""The most, in Euclidean norm, by which one record changes svec(S) and V together."""

_AT_A_TIME = 8192  # records whose features are held in double precision
_COUNTED_AT_A_TIME = 2**14  # records whose ones are written out; at most 2^24, so that single precision counts exactly


def moment_sums(features: Tensor, y: Tensor, group: Tensor, groups: int, classes: int, by_group: bool
                ) -> dict[str, Tensor]:
    """Return the sums over n records, in double precision, whatever the type of the features.

    A row that is longer than 1 is shortened to 1, and one that is not finite adds nothing.

    Args:
        features: phi, `[n, d]`.
        y: Labels, `[n]`, from 0 to C - 1.
        group: Group numbers, `[n]`, from 0 to K - 1.
        groups: Number of groups K.
        classes: Number of classes C.
        by_group: Whether to add up S for each group.

    Returns:
        "second": svec(S), `[1, d (d + 1) / 2]`, or `[K, ...]`; "first": V, `[K, d, C]`.
    """
    width, parts = features.shape[1], groups if by_group else 1
    second = torch.zeros(parts, width, width, dtype=torch.float64)
    first = torch.zeros(groups * classes, width, dtype=torch.float64)
    cell, part = (group * classes + y).cpu(), group.cpu() if by_group else torch.zeros(len(y), dtype=torch.long)
    if not (isinstance(features, Cells) and _counted_sums(features, cell, part, second, first)):
        _added_up(features, cell, part, second, first)
    return {"second": svec(second), "first": first.view(groups, classes, width).transpose(1, 2).contiguous()}


def _added_up(features: Tensor, cell: Tensor, part: Tensor, second: Tensor, first: Tensor) -> None:
    """Add the sums over records to `second` and `first`; see `_counted_sums` for the arguments."""
    for rows in torch.split(torch.arange(len(features)), _AT_A_TIME):
        phi = within_one(features[rows].double().cpu())
        first.index_add_(0, cell[rows], phi)
        for place in range(len(second)):
            own = phi[part[rows] == place] if len(second) > 1 else phi
            second[place] += own.T @ own


def _counted_sums(cells: Cells, cell: Tensor, part: Tensor, second: Tensor, first: Tensor) -> bool:
    """Add the sums over n records to `second` and `first`, if their features are bounded ones.

    Args:
        cells: Their features, d with the constant.
        cell: Number of group and class of each, `[n]`.
        part: Which second moments each is added to, `[n]`.
        second: sum phi phi', `[parts, d, d]`, in double precision.
        first: sum phi, `[cells, d]`, in double precision.

    Returns:
        Whether they are; if not, nothing was added.
    """
    ones, bounding, features = cells.ones(), cells.encoding.bounding, len(cells.encoding.features)
    if ones is None or bounding is None:
        return False
    known = number_of_ones(ones, features)
    for number in torch.unique(known):
        chosen = (known == number).nonzero().flatten()
        pairs, records = torch.zeros_like(second), torch.zeros_like(first)
        for rows in torch.split(chosen, _COUNTED_AT_A_TIME):
            hot = ones_of(ones[rows], features, torch.float32)
            records += one_hot(cell[rows], len(first)).T.float() @ hot
            for place in range(len(second)):
                own = hot[part[rows] == place] if len(second) > 1 else hot
                pairs[place] += sum_of_outer_products(own, own)
        values = value_of_one(number, bounding).repeat(features + 1)
        values[features] = bounding.last
        second += pairs * torch.outer(values, values)
        first += records * values
    return True


def within_one(features: Tensor) -> Tensor:
    """Return rows `[n, d]` of norm at most 1: longer ones shortened, those that are not finite as zeros."""
    finite = torch.where(features.isfinite().all(1, keepdim=True), features, 0.0)
    largest = finite.abs().amax(1, keepdim=True).clamp(min=1.0)  # so that no square overflows
    scaled = finite / largest
    norms = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.maximum(norms, 1.0 / largest)


def svec(matrices: Tensor) -> Tensor:
    """Return symmetric matrices `[k, d, d]` as vectors `[k, d (d + 1) / 2]` of the same norm."""
    rows, columns, factors = _triangle(matrices.shape[-1])
    return matrices[:, rows, columns] * factors


def unsvec(vectors: Tensor) -> Tensor:
    """Return the symmetric matrices `[k, d, d]` whose `svec` the vectors `[k, d (d + 1) / 2]` are."""
    width = (math.isqrt(8 * vectors.shape[-1] + 1) - 1) // 2
    rows, columns, factors = _triangle(width)
    matrices = vectors.new_zeros(len(vectors), width, width)
    matrices[:, rows, columns] = vectors / factors
    return matrices + matrices.triu(1).transpose(1, 2)


def zeros(width: int, groups: int, classes: int, by_group: bool) -> Mapping[str, Tensor]:
    """Return the sums over no record, in the shape that nodes send.

    Args:
        width: Number of features d.
        groups: Number of groups K.
        classes: Number of classes C.
        by_group: Whether S is added up for each group.
    """
    parts = groups if by_group else 1
    return {"second": torch.zeros(parts, width * (width + 1) // 2, dtype=torch.float64),
            "first": torch.zeros(groups, width, classes, dtype=torch.float64)}


@lru_cache(maxsize=8)
def _triangle(width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, columns and factors of the entries of svec, each `[d (d + 1) / 2]`."""
    rows, columns = torch.triu_indices(width, width)
    factors = torch.full((len(rows),), math.sqrt(2), dtype=torch.float64)
    factors[rows == columns] = 1.0
    return rows, columns, factors


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
