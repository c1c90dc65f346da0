"""What is summed over evaluated records, by group: all that the metrics are made of.

Sums over the probabilities that a model gives, by group: enough for AUC, Brier score and calibration, which follow from
them here. Metrics of decisions are beside the table of all, `fedfair.fairness.metrics`.

The area under the ROC curve needs the order of all scores, which does not add up over nodes. A histogram does: its bins
are equal steps of asinh(log-odds of the favourable class), 0.01 wide where the odds are even and 1 % of the log-odds
elsewhere. Scores within one bin count as ties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 1024
"""Bins of the histogram of scores."""

MOST_CLASSES = 256
"""Classes up to which labels are counted with predictions."""

LEVELS = 10
"""Equal parts of [0, 1] by which probabilities are compared with what occurs."""

_END = math.asinh(100.0)  # log-odds beyond 100 are in the last bins: e^-100 is 0 in float32


class Scores(NamedTuple):
    """What a model says of n records.

    Attributes:
        output: Logits, `[n, classes]`.
        favourable: Favourable class; None for none.
    """

    output: Tensor
    favourable: int | None


def favourable_of(favourable: int | None, classes: int) -> int | None:
    """Return the favourable class: of two classes by default 1."""
    return 1 if favourable is None and classes == 2 else favourable


def score_zeros(groups: int) -> dict[str, Tensor]:
    """Return the sums over no record, by name."""
    scores = torch.zeros(groups, BINS, 2)  # the largest of all sums; float32 counts 16 million records in a bin exactly
    return {"scores": scores, "calibration": torch.zeros(groups, LEVELS, 3, dtype=torch.float64),
            "squared_errors": torch.zeros(groups, dtype=torch.float64)}


def score_sums(scores: Scores, y: Tensor, group: Tensor, groups: int) -> dict[str, Tensor]:
    """Return the sums over n records, by name (see `fedfair.fairness.group_counts.GroupCounts`).

    Without a favourable class, calibration is that of the most probable class (Guo et al. 2017), and no scores are
    counted.

    Args:
        scores: The model's output.
        y: Labels, `[n]`.
        group: Group numbers, `[n]`.
        groups: Number of groups K.
    """
    logits, y, group = (value.detach().cpu() for value in (scores.output, y, group))
    probabilities = logits.double().softmax(1)
    sums = score_zeros(groups)
    own = probabilities.gather(1, y[:, None]).flatten()
    squared = probabilities.square().sum(1) - own.square() + (1 - own).square()
    halved = squared / 2 if logits.shape[1] == 2 else squared  # (p - y)^2 of two classes, as Brier's score is known
    sums["squared_errors"].index_add_(0, group, halved)
    named = favourable_of(scores.favourable, logits.shape[1])
    if named is None:
        stated, chosen = probabilities.max(1)
        occurred = chosen == y
    else:
        stated, occurred = probabilities[:, named], y == named
        cell = (group * BINS + bins(log_odds(logits.double(), named))) * 2 + occurred
        sums["scores"] += torch.bincount(cell, minlength=groups * BINS * 2).view(groups, BINS, 2)
    level = (stated.nan_to_num() * LEVELS).long().clamp(0, LEVELS - 1)
    values = torch.stack([torch.ones_like(stated), stated, occurred.double()], 1)
    sums["calibration"].view(-1, 3).index_add_(0, group * LEVELS + level, values)
    return sums


def log_odds(logits: Tensor, favourable: int) -> Tensor:
    """Return the log-odds of the favourable class against all others, `[n]`."""
    rest = torch.cat([logits[:, :favourable], logits[:, favourable + 1:]], 1)
    return logits[:, favourable] - rest.logsumexp(1)


def bins(odds: Tensor) -> Tensor:
    """Return the bin of each of n log-odds, `[n]`."""
    place = (odds.asinh() + _END) / (2 * _END) * BINS
    return place.nan_to_num(BINS / 2).long().clamp(0, BINS - 1)


def middles() -> Tensor:
    """Return the probability that stands for each bin, `[BINS]`."""
    at = (torch.arange(BINS, dtype=torch.float64) + 0.5) / BINS * 2 * _END - _END
    return torch.sigmoid(at.sinh())


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
            `fedfair.fairness.group_counts`); None if there are no probabilities.
        calibration: Records, sums of probabilities and occurrences by probability, `[K, 10, 3]`; or None.
        squared_errors: Sums of the squared errors of the probabilities, `[K]`; or None.
        confusion: Number of records with each label and prediction, `[K, classes, classes]`; None unless asked for.

    Examples:
        >>> decided, y, group = torch.tensor([1, 0, 1]), torch.tensor([1, 1, 1]), torch.tensor([0, 0, 1])
        >>> none = GroupCounts.zeros(groups=2, classes=2, confusion=True)
        >>> counts = none + GroupCounts.of(decided, y, group, losses=torch.ones(3), norms=torch.zeros(3), like=none)
        >>> counts.correct.tolist(), counts.tensors()["losses"].tolist()
        ([[0.0, 1.0], [0.0, 1.0]], [2.0, 1.0])
        >>> [float(sums["losses"]) for sums in counts.by_group()], float(counts.overall()["losses"])
        ([2.0, 1.0], 3.0)
        >>> GroupCounts.of_decisions(counts.confusion).labels.tolist()
        [[0.0, 2.0], [0.0, 1.0]]
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

    def by_group(self) -> list[Sums]:
        """Return the sums over the records of each group."""
        sums = self.tensors()
        return [{name: values[group] for name, values in sums.items()} for group in range(len(self.labels))]

    def overall(self) -> Sums:
        """Return the sums over all records."""
        return {name: values.sum(0) for name, values in self.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name, as they travel in a message, without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}


def auc(sums: Sums, favourable: int | None) -> float:
    """Return the area under the ROC curve of the favourable class, from a histogram of the scores.

    Args:
        sums: Sums over the records, whose scores are of the favourable class.
        favourable: The favourable class; the sums tell already.

    Returns:
        The area; NaN unless there are records with the label and without.
    """
    others, own = _by_score(sums)
    below = others.cumsum(0) - others
    return rate(float((own * (below + others / 2)).sum()), float(own.sum() * others.sum()))


def auc_error(sums: Sums, favourable: int | None) -> float:
    """Return the most by which `auc` can differ from that of the scores themselves: half of the pairs in one bin.

    Args:
        sums: Sums over the records.
        favourable: The favourable class; the sums tell already.
    """
    others, own = _by_score(sums)
    return rate(float((own * others).sum() / 2), float(own.sum() * others.sum()))


def brier_score(sums: Sums, favourable: int | None) -> float:
    """Return the mean squared error of the probabilities, summed over the classes if there are more than two.

    Args:
        sums: Sums over the records.
        favourable: The favourable class, which does not matter.
    """
    return rate(float(sums.get("squared_errors", torch.zeros(()))), float(_by_level(sums)[:, 0].sum()))


def calibration_error(sums: Sums, favourable: int | None) -> float:
    """Return the expected calibration error over ten equal parts of [0, 1].

    It is that of the favourable class's probability; without one, of the most probable class (Guo et al. 2017).

    Args:
        sums: Sums over the records.
        favourable: The favourable class; the sums tell already.
    """
    records, stated, occurred = _by_level(sums).unbind(1)
    return rate(float((stated - occurred).abs().sum()), float(records.sum()))


def rate(part: float, whole: float) -> float:
    """Return `part / whole`, NaN if `whole` is 0."""
    return part / whole if whole else math.nan


def _by_score(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return the numbers of records without and with the favourable label, by their scores' bins."""
    counts = sums.get("scores", torch.zeros(1, 2)).double()
    return counts[:, 0], counts[:, 1]


def _by_level(sums: Sums) -> Tensor:
    """Return records, sums of probabilities and occurrences, by ten levels of the probability."""
    return sums.get("calibration", torch.zeros(1, 3))
