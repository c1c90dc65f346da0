"""Metrics by group, and the gaps between groups.

Each metric is computed once for each group, and a gap is the largest difference between groups. Definitions: accuracy
parity and demographic parity, Yang et al. 2024, equations 1-2; equalised odds and equal opportunity, Hardt et al. 2016.
A prediction is positive if it is the favourable class. Of two classes that is 1; with more, rates of positive
predictions are NaN unless a favourable class is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.plugins.reserved_names import ALL_GROUPS

ALL = ALL_GROUPS
"""The name of all groups together."""

GAPS = {"accuracy_parity": ("accuracy",), "demographic_parity": ("positive_rate",),
        "equal_opportunity": ("true_positive_rate",), "equalised_odds": ("true_positive_rate", "false_positive_rate")}
"""Gaps by name, and the metrics whose largest difference between groups they are."""


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


def metrics(counts: GroupCounts, names: tuple[str, ...], favourable: int | None = None
            ) -> Iterator[tuple[str, str, float]]:
    """Yield the metrics of each group and of all records, then the gaps.

    Args:
        counts: Sums over the evaluated records.
        names: Names of the groups, in the order of their numbers.
        favourable: Class whose prediction is positive; by default 1 of two classes, and none of more.

    Yields:
        Group or "all", metric, and value. A rate over no record is NaN. Gradient norms are left out if all are zero.
    """
    if favourable is None and counts.labels.shape[1] == 2:
        favourable = 1
    values = [_values({name: sums[k] for name, sums in counts.tensors().items()}, favourable)
              for k in range(len(names))]
    overall = _values({name: sums.sum(0) for name, sums in counts.tensors().items()}, favourable)
    for name, row in ((ALL, overall), *zip(names, values, strict=True)):
        for metric, value in row.items():
            if metric != "gradient_norm" or bool(counts.gradient_norms.any()):
                yield name, metric, value
    for gap, over in GAPS.items():
        gaps = [largest_gap([row[metric] for row in values]) for metric in over]
        yield ALL, gap, max((value for value in gaps if not math.isnan(value)), default=math.nan)


def largest_gap(values: list[float]) -> float:
    """Return the largest difference between two values.

    Args:
        values: Values by group; a NaN is left out.

    Returns:
        The difference; NaN for fewer than two values.
    """
    numbers = [value for value in values if not math.isnan(value)]
    return max(numbers) - min(numbers) if len(numbers) > 1 else math.nan


def _values(sums: dict[str, Tensor], favourable: int | None) -> dict[str, float]:
    """Return the metrics of one group from its counts by class and its sums, named as in `GroupCounts`.

    `predicted_classes` is the number of classes that are predicted for any record: of a next-word model, its active
    vocabulary.
    """
    labels, predicted, correct = sums["labels"], sums["predicted"], sums["correct"]
    records = float(labels.sum())
    row = {"records": records, "accuracy": _rate(float(correct.sum()), records),
           "loss": _rate(float(sums["losses"]), records),
           "gradient_norm": _rate(float(sums["gradient_norms"]), records),
           "predicted_classes": float((predicted > 0).sum())}
    if favourable is None:
        return {**row, "positive_rate": math.nan, "true_positive_rate": math.nan, "false_positive_rate": math.nan}
    positive, labelled, both = (float(counts[favourable]) for counts in (predicted, labels, correct))
    return {**row, "positive_rate": _rate(positive, records), "true_positive_rate": _rate(both, labelled),
            "false_positive_rate": _rate(positive - both, records - labelled)}


def _rate(part: float, whole: float) -> float:
    """Return `part / whole`, NaN if `whole` is 0."""
    return part / whole if whole else math.nan
