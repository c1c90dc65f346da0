"""How the noise of a rate of noisy counts spreads: by which cells are added up, so that no count decides it.

Cells are those of a confusion table `[C, C]`, by label and decision. Many rates are of the same cells, of every group,
classifier and cut-off, so that each is computed once.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from fedfair.fairness.intervals import UNKNOWN, Estimate, Spread


@lru_cache(maxsize=4096)
def cells_of(classes: int, label: int | None, decision: int | None) -> Tensor:
    """Return a mask of the cells of a label and a decision, `[C, C]`; None for any. Nobody may change it in place.

    Args:
        classes: Number of classes, C.
        label: The label.
        decision: The decision.
    """
    chosen = torch.zeros(classes, classes, dtype=torch.bool)
    chosen[label if label is not None else slice(None), decision if decision is not None else slice(None)] = True
    return chosen


@lru_cache(maxsize=4096)
def spread_of(part: bytes, whole: bytes, counted: bytes, alike: int) -> Spread | Estimate:
    """Return how the noise of a rate spreads; or the rate, where it is known whoever the records are.

    It is known where only one of part and rest has cells that can hold a record.

    Args:
        part: Cells of the rate's part, a byte of 0 or 1 for each of `[C, C]`.
        whole: Cells of the whole, those of the part included.
        counted: Cells that can hold a record.
        alike: Number of tables that were made alike.
    """
    classes = math.isqrt(len(whole))
    masks = (torch.tensor([*cells]).view(classes, classes).bool() for cells in (part, whole, counted))
    of, among, held = masks
    own, others = of & held, among & ~of & held
    if not (own.any() and others.any()):
        known = float(own.any())
        return Estimate(known, known, known) if own.any() or others.any() else UNKNOWN
    both = own | others
    return Spread(covariance(own, own, alike), covariance(own, both, alike), covariance(both, both, alike))


def covariance(cells: Tensor, others: Tensor, alike: int) -> float:
    """Return the covariance of the noise of two sums of cells, in units of that of one cell.

    Noise within a label differs from its mean as before; the mean is that of all tables that were made alike.

    Args:
        cells: Mask of the cells of the first sum, `[C, C]`.
        others: Mask of those of the second, `[C, C]`.
        alike: Number of tables that were made alike.
    """
    first, second = cells.double(), others.double()
    means = first.mean(1), second.mean(1)
    apart = ((first - means[0][:, None]) * (second - means[1][:, None])).sum()
    return float(apart + len(first) / alike * (means[0] * means[1]).sum())
