"""Figures of many linear classifiers on held-out records, for the choice of one of them; exact, so not private."""

from __future__ import annotations

from typing import cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.datasets import GroupedDataset
from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack

HELD_OUT = ("valid", "test")
_MOST = 1000


@exchange("evaluate")
def send_front_counts(node: Node, request: Request) -> RecordDict:
    """Send for each classifier how often a label is decided as a class, by group, `[points, K, C, C]`, by part.

    Raises `ValueError` for more classifiers than anybody compares, or for another part than held-out ones.
    """
    weights, splits = request.tensors("front")["weights"], cast(list[str], request.options["splits"])
    if len(weights) > _MOST or not {*splits} <= {*HELD_OUT}:
        raise ValueError(f"the server asks for {len(weights)} classifiers on {', '.join(splits)}: at most {_MOST} are "
                         f"counted, on {' and '.join(HELD_OUT)}")
    return RecordDict({split: pack({"confusion": confusions(getattr(node.clients.together, split), weights.cpu())})
                       for split in (splits if node.clients else ())})


def confusions(data: GroupedDataset, weights: Tensor) -> Tensor:
    """Count how often a label is decided as a class, for each classifier and group.

    Args:
        data: Records with features `[n, d]`.
        weights: Weights of the classifiers, `[points, d, C]`; the class of the largest score is decided for.

    Returns:
        Counts, `[points, K, C, C]`: label, then decision.
    """
    points, _, classes = weights.shape
    groups = len(data.names)
    counts = torch.zeros(points, groups * classes * classes, dtype=torch.float64)
    together = weights.transpose(0, 1).flatten(1)
    for rows in data.portions(torch.arange(len(data))):
        scores = (data.features(rows).to(weights.dtype) @ together).view(len(rows), points, classes)
        cell = (data.group[rows] * classes + data.y[rows]).unsqueeze(1) * classes + scores.argmax(2)
        counts.scatter_add_(1, cell.T, torch.ones(points, len(rows), dtype=torch.float64))
    return counts.view(points, groups, classes, classes)
