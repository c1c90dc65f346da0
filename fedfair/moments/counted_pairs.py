"""The sums of moments of records whose features are ones: numbers of records and of pairs, times what a one becomes.

A bounded row has the same number v in every place that is not 0, and a constant c behind them (`Bounding`); v depends
on how many ones it has, which is their number of columns unless a cell is missing or unknown. So sum phi phi' over rows
of m ones is the number of rows with a one in both of two places, times v^2, v c or c^2. Numbers are counted exactly, in
single precision a portion and in double precision over all: the sums do not depend on the order of records.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedfair.datasets.features.cells import Cells
from fedfair.datasets.features.places import ones_of, value_of_one
from fedfair.gradients.kernels import sum_of_outer_products

_AT_A_TIME = 2**14  # records whose ones are written out; at most 2^24, so that single precision counts exactly


def counted_sums(cells: Cells, cell: Tensor, part: Tensor, second: Tensor, first: Tensor) -> bool:
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
    known = (ones < features).sum(1)
    for number in torch.unique(known):
        chosen = (known == number).nonzero().flatten()
        pairs, records = torch.zeros_like(second), torch.zeros_like(first)
        for rows in torch.split(chosen, _AT_A_TIME):
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
