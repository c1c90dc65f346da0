"""Differences between groups' mean predictions, from public group sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.protocol.task import Task
from strategies.server.population import Population


def differences(method: str, population: Population) -> Tensor:
    """Return the matrix that takes sums by group to differences of means, `[K, K]`: each group's, less all others'.

    A row is zero for a group without records. Raises `ValueError` unless two groups have some.

    Args:
        method: Name of the method, for errors.
        population: Public sizes of the groups.
    """
    sizes = torch.tensor(population.by_group, dtype=torch.float64)
    if int((sizes > 0).sum()) < 2:
        raise ValueError(f"{method} compares groups, but only {int((sizes > 0).sum())} has training records here "
                         f"({', '.join(population.names)}): choose a column with more values as group")
    others = -(1 / (sizes.sum() - sizes))[:, None].expand(len(sizes), len(sizes))
    matrix = others.clone()
    matrix.diagonal().copy_(1 / sizes.clamp(min=1))
    return matrix * (sizes > 0)[:, None]


def refuse_weights(method: str, task: Task) -> None:
    """Raise `ValueError` for weights of records or classes: rates count all records alike.

    Args:
        method: Name of the method, for errors.
        task: The task, with its weights.
    """
    if task.record_weight or task.class_weights:
        raise ValueError(f"{method} counts all records alike: leave record_weight and class_weights out")
