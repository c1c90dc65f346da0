"""What is summed over evaluated records, by group: all that the metrics are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Sums = Mapping[str, Tensor]
"""The sums of `GroupCounts` over the records of one group, by name."""


@dataclass(frozen=True)
class GroupCounts:
    """Sums over evaluated records, by group; `+` adds those of other records.

    Args:
        labels: Number of records with each label, `[K, classes]`.
        predicted: Number of records for which each class is predicted, `[K, classes]`.
        correct: Number of records with each label for which it is predicted, `[K, classes]`.
        losses: Sums of the losses, `[K]`.
        gradient_norms: Sums of the norms of the per-example gradients, `[K]`; zeros if they were not computed.
    """

    labels: Tensor
    predicted: Tensor
    correct: Tensor
    losses: Tensor
    gradient_norms: Tensor

    @staticmethod
    def zeros(groups: int, classes: int) -> GroupCounts:
        """Return the sums over no record.

        Args:
            groups: Number of groups K.
            classes: Number of classes.
        """
        cells, sums = torch.zeros(3, groups, classes, dtype=torch.float64), torch.zeros(2, groups, dtype=torch.float64)
        return GroupCounts(*cells, *sums)

    @staticmethod
    def of(predicted: Tensor, y: Tensor, group: Tensor, losses: Tensor, norms: Tensor, like: GroupCounts
           ) -> GroupCounts:
        """Return the sums over n records.

        Args:
            predicted: Predicted classes, `[n]`.
            y: Labels, `[n]`.
            group: Group numbers, `[n]`.
            losses: Losses, `[n]`.
            norms: Norms of the per-example gradients, `[n]`.
            like: Sums of the shapes that are wanted.
        """
        groups, classes = like.labels.shape
        right = predicted == y
        cells = [torch.bincount(group[rows] * classes + label[rows], minlength=groups * classes).view(groups, classes)
                 for label, rows in ((y, ...), (predicted, ...), (y, right))]
        sums = [torch.zeros(groups, dtype=torch.float64).index_add_(0, group.cpu(), value.detach().double().cpu())
                for value in (losses, norms)]
        return GroupCounts(*(cell.double().cpu() for cell in cells), *sums)

    def __add__(self, other: GroupCounts) -> GroupCounts:
        return GroupCounts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name, as they travel in a message."""
        return dict(vars(self))
