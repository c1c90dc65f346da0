"""Metrics from counts by group: every gap is an aggregation of per-group values that are computed once.

Definitions: accuracy parity and demographic parity, Yang et al. 2024, equations 1-2, for more than two groups the
largest difference; equalised odds and equal opportunity, Hardt et al. 2016. Rates of positive predictions are those of
the favourable class, 1 of two; with more classes they are not a number unless one is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

ALL = "all"
"""Stands for all groups together."""
RESERVED = (ALL, "gap", "parity")
"""What no group can be called: results call figures of all groups together so, as in "accuracy_parity"."""

GAPS = {"accuracy_parity": ("accuracy",), "demographic_parity": ("positive_rate",),
        "equal_opportunity": ("true_positive_rate",), "equalised_odds": ("true_positive_rate", "false_positive_rate")}
"""Each gap is the largest difference between groups, over the named per-group values."""


@dataclass(frozen=True)
class GroupCounts:
    """Sums over evaluated records: how many of each class have the label (`labels`), get it (`predicted`), and both
    (`correct`), `[K, classes]` each; `losses` `[K]`, `gradient_norms` `[K]`.
    """

    labels: Tensor
    predicted: Tensor
    correct: Tensor
    losses: Tensor
    gradient_norms: Tensor

    @staticmethod
    def zeros(groups: int, classes: int) -> GroupCounts:
        """No record yet."""
        cells, sums = torch.zeros(3, groups, classes, dtype=torch.float64), torch.zeros(2, groups, dtype=torch.float64)
        return GroupCounts(*cells, *sums)

    @staticmethod
    def of(predicted: Tensor, y: Tensor, group: Tensor, losses: Tensor, norms: Tensor, like: GroupCounts
           ) -> GroupCounts:
        """The sums for n records, each argument `[n]`, shaped as in `like`."""
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
        """The sums by name, as they travel."""
        return dict(vars(self))


def metrics(counts: GroupCounts, names: tuple[str, ...], favourable: int | None = None
            ) -> Iterator[tuple[str, str, float]]:
    """Rows (group or "all", metric, value); a rate over no record is not a number.

    `favourable` is the class whose predictions are positive; by default 1 of two classes, and none of more.
    A gradient norm of zero everywhere means that norms were not asked for, and is left out.
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
    """The largest difference between two of the values that are numbers; not a number for fewer than two."""
    numbers = [value for value in values if not math.isnan(value)]
    return max(numbers) - min(numbers) if len(numbers) > 1 else math.nan


def _values(sums: dict[str, Tensor], favourable: int | None) -> dict[str, float]:
    """The metrics of one group from its counts by class and its sums, named as in `GroupCounts`.

    `predicted_classes` is the number of classes that are predicted at all: a next-word model's active vocabulary.
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
    """`part / whole`, not a number if there is nothing."""
    return part / whole if whole else math.nan
