"""What is summed over evaluated records, by group: all that the metrics are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.fairness.score_sums import Scores, score_sums, score_zeros

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
        scores: Number of records by odds of the favourable class, and by whether that is the label, `[K, BINS, 2]` (see
            `fedfair.fairness.score_sums`); None if there are no probabilities.
        calibration: Records, sums of probabilities and occurrences by probability, `[K, 10, 3]`; or None.
        squared_errors: Sums of the squared errors of the probabilities, `[K]`; or None.
        confusion: Number of records with each label and prediction, `[K, classes, classes]`; None unless asked for.
    """

    labels: Tensor
    predicted: Tensor
    correct: Tensor
    losses: Tensor
    gradient_norms: Tensor
    scores: Tensor | None = None
    calibration: Tensor | None = None
    squared_errors: Tensor | None = None
    confusion: Tensor | None = None

    @staticmethod
    def zeros(groups: int, classes: int, confusion: bool = False) -> GroupCounts:
        """Return the sums over no record.

        Args:
            groups: Number of groups K.
            classes: Number of classes.
            confusion: Whether to count labels with predictions.
        """
        cells, sums = torch.zeros(3, groups, classes, dtype=torch.float64), torch.zeros(2, groups, dtype=torch.float64)
        pairs = torch.zeros(groups, classes, classes, dtype=torch.float64) if confusion else None
        further = score_zeros(groups)
        return GroupCounts(cells[0], cells[1], cells[2], sums[0], sums[1], further["scores"], further["calibration"],
                           further["squared_errors"], pairs)

    @staticmethod
    def of(predicted: Tensor, y: Tensor, group: Tensor, losses: Tensor, norms: Tensor, like: GroupCounts,
           scores: Scores | None = None) -> GroupCounts:
        """Return the sums over n records.

        Args:
            predicted: Predicted classes, `[n]`.
            y: Labels, `[n]`.
            group: Group numbers, `[n]`.
            losses: Losses, `[n]`.
            norms: Norms of the per-example gradients, `[n]`.
            like: Sums of the shapes that are wanted.
            scores: The model's output for the records; without it, what is made of probabilities is unknown.
        """
        groups, classes = like.labels.shape
        right = predicted == y
        cells = [torch.bincount(group[rows] * classes + label[rows], minlength=groups * classes).view(groups, classes)
                 for label, rows in ((y, ...), (predicted, ...), (y, right))]
        sums = [torch.zeros(groups, dtype=torch.float64).index_add_(0, group.cpu(), value.detach().double().cpu())
                for value in (losses, norms)]
        further = score_zeros(groups) if scores is None else score_sums(scores, y, group, groups)
        if like.confusion is not None:
            pairs = torch.bincount((group * classes + y) * classes + predicted, minlength=groups * classes**2)
            further["confusion"] = pairs.view(groups, classes, classes).double().cpu()
        made = dict(zip(("labels", "predicted", "correct"), (cell.double().cpu() for cell in cells), strict=True))
        return GroupCounts(**made, losses=sums[0], gradient_norms=sums[1], **further)

    @staticmethod
    def of_decisions(confusion: Tensor) -> GroupCounts:
        """Return the sums of decisions alone, of which losses and probabilities are unknown.

        Args:
            confusion: Number of records with each label and decision, `[K, classes, classes]`.
        """
        none = torch.zeros(len(confusion), dtype=torch.float64)
        return GroupCounts(labels=confusion.sum(2), predicted=confusion.sum(1), correct=confusion.diagonal(0, 1, 2),
                           losses=none, gradient_norms=none)

    def __add__(self, other: GroupCounts) -> GroupCounts:
        mine, others = self.tensors(), other.tensors()
        return GroupCounts(**{name: mine[name] + others[name] for name in mine})

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name, as they travel in a message, without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}
