"""Weights of groups under which the group that is served worst is served better.

The largest of several convex losses is least where weights on the groups are largest for the largest losses. They are
found by multiplicative weights (Freund and Schapire 1999; for groups, Sagawa et al. 2020) on losses that follow from
the released moments, so that all of it costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.moments.heads import least_squares
from fedfair.moments.release import Moments

_STEPS, _RATE = 50, 0.5


def squared_losses(moments: Moments, weights: Tensor) -> Tensor:
    """Return each group's mean squared error of scores against +1 and -1, `[K]`, as the noisy moments tell it.

    Args:
        moments: Moments by group.
        weights: Weights of the classifier, `[d, C]`.
    """
    wanted = 2 * moments.first - moments.first.sum(2, keepdim=True)
    counts = (moments.first[:, -1].sum(1) / moments.last).clamp(min=1.0)
    squares = torch.einsum("dc,kde,ec->k", weights, moments.second, weights)
    products = torch.einsum("dc,kdc->k", weights, wanted)
    return (squares - 2 * products) / counts + moments.first.shape[2]


def group_weights(moments: Moments, strength: float) -> tuple[float, ...]:
    """Return a weight of the records of each group, `[K]`, that are 1 on average over groups of equal size.

    Args:
        moments: Moments by group.
        strength: From 0, all records count alike, to 1, only the largest loss of a group counts.
    """
    groups = len(moments.first)
    counts = (moments.first[:, -1].sum(1) / moments.last).clamp(min=1.0)
    shares = counts / counts.sum()
    logs, total = shares.log(), torch.zeros(groups, dtype=torch.float64)  # losses of noise can be as large as 1e6
    for _ in range(_STEPS):
        chosen = torch.softmax(logs, 0)
        head = least_squares(moments.pooled((chosen / shares).tolist()))
        logs = logs + _RATE * squared_losses(moments, head.weights)
        total += torch.softmax(logs, 0) / _STEPS
    mixed = (1 - strength) * shares + strength * total
    return tuple((mixed / shares).tolist())
