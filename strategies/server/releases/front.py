"""A front: classifiers besides the run's model that follow from the same releases, with their figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from flwr.app import ArrayRecord, Message
from torch import Tensor

from fedfair.accounting.events import LEFT_OUT
from fedfair.fairness.metrics import ALL, metrics_of_decisions
from fedfair.fairness.noisy_figures import NoisyCounts
from fedfair.moments.front import Front
from fedfair.node.front_counts import HELD_OUT
from strategies.server.population import Population
from strategies.server.replies.reply_checks import check_counts, check_tensors, sender

CHOSEN_ON = ("valid", LEFT_OUT)
"""Parts on which a classifier is chosen: a front has figures of one of them."""


class FrontRow(TypedDict):
    """One figure of one classifier on a part of the records; `group` may be "all".

    `low` and `high` are the ends of its interval, NaN for exact figures of the part.
    """

    point: int
    split: str
    group: str
    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MeasuredFront:
    """Classifiers with their figures.

    Attributes:
        front: Settings and weights.
        rows: Figures of decisions on held-out parts, by the position of the classifier.
    """

    front: Front
    rows: tuple[FrontRow, ...]


def measured(front: Front, replies: list[Message], population: Population, favourable: int | None) -> MeasuredFront:
    """Return a front with the figures that nodes counted.

    Args:
        front: Settings and weights.
        replies: Answers of all nodes to `fedfair.node.front_counts.send_front_counts`.
        population: Names of groups and classes.
        favourable: Number of the favourable class, or None.

    Raises:
        fedfair.node.node.ClientError: If a node sent counts that cannot be.
    """
    rows: list[FrontRow] = []
    figures: dict[bytes, list[tuple[str, str, float]]] = {}  # many classifiers decide alike
    for split in HELD_OUT:
        for point, confusion in enumerate(_confusions(front, replies, split, population)):
            if not bool(confusion.any()):  # no record is in the part
                continue
            decisions = confusion.numpy().tobytes()
            if decisions not in figures:
                figures[decisions] = [*metrics_of_decisions(confusion, population.names, favourable)]
            rows += [FrontRow(point=point, split=split, group=group, metric=metric, value=value, low=math.nan,
                              high=math.nan) for group, metric, value in figures[decisions]]
    return MeasuredFront(front, tuple(rows))


def _confusions(front: Front, replies: list[Message], split: str, population: Population) -> Tensor:
    """Add up how often labels are decided as classes, `[points, K, C, C]`."""
    groups, classes = len(population.names), population.classes
    total = torch.zeros(len(front.points), groups, classes, classes, dtype=torch.float64)
    for reply in replies:
        who, record = sender(reply), reply.content.array_records.get(split, ArrayRecord())
        if record or who.clients:
            values = check_tensors(who, record, f"counts of {split}", {"confusion": total})
            total = total + check_counts(who, split, values)["confusion"]
    return total


def noisy(front: Front, counts: Mapping[str, Sequence[NoisyCounts]]) -> MeasuredFront:
    """Return a front with figures of noisy counts.

    Args:
        front: Settings and weights.
        counts: Counts of every classifier by part.
    """
    rows: list[FrontRow] = []
    for split, of in counts.items():
        for point, counted in enumerate(of):
            rows += [FrontRow(point=point, split=split, **figure._asdict())  # type: ignore[typeddict-item]
                     for figure in counted.figures() if not math.isnan(figure.value)]
    return MeasuredFront(front, tuple(rows))


def least_constrained(front: MeasuredFront, gaps: Sequence[str], limit: float) -> int:
    """Return the classifier of the largest tau on the validation part whose gaps are within a limit.

    Of noisy figures this is better than the most accurate one: the loss grows as tau leaves 1, while the largest of
    several noisy accuracies is often that of a classifier with much noise.

    Args:
        front: Classifiers with figures on the validation part.
        gaps: Names of gaps between groups.
        limit: The largest that each may be.

    Returns:
        Its position. If none is within the limit, that of the classifier whose largest gap is smallest; if that is told
        to be above the limit, noise or not, that of the one that decides alike for everybody, which has no gap.
    """
    wide, least = largest_gaps(front, gaps), largest_gaps(front, gaps, "low")
    fitted = [point for point, made in enumerate(front.front.points) if made.head != "constant"]
    rising = sorted(fitted, key=lambda point: -front.front.points[point].tau)
    nearest = min(fitted, key=wide.__getitem__)
    if limit < least[nearest] < math.inf:  # which is an unknown gap
        return min(wide, key=wide.__getitem__)
    return next((point for point in rising if wide[point] <= limit), nearest)


def most_accurate(front: MeasuredFront, gaps: Sequence[str], limit: float) -> int:
    """Return the most accurate classifier on the validation part whose gaps are within a limit.

    Args:
        front: Classifiers with figures on the validation part.
        gaps: Names of gaps between groups.
        limit: The largest that each may be.

    Returns:
        Its position; if none is within the limit, that of the classifier whose largest gap is smallest.
    """
    wide, accuracy = largest_gaps(front, gaps), _on_validation(front, "accuracy")
    within = [point for point in accuracy if wide[point] <= limit] or [min(accuracy, key=wide.__getitem__)]
    return max(within, key=accuracy.__getitem__)


def _on_validation(front: MeasuredFront, metric: str, of: Literal["value", "low"] = "value") -> dict[int, float]:
    """Return a figure of all records of the validation part by the position of the classifier."""
    return {row["point"]: row[of] for row in front.rows
            if row["split"] in CHOSEN_ON and row["group"] == ALL and row["metric"] == metric}


def largest_gaps(front: MeasuredFront, gaps: Sequence[str], of: Literal["value", "low"] = "value") -> dict[int, float]:
    """Return the largest of some gaps on the validation part, by position of the classifier; infinite if unknown.

    Args:
        front: Classifiers with figures on the validation part.
        gaps: Names of gaps between groups.
        of: Whether the value of each is meant, or the lower end of its interval.
    """
    found = [_on_validation(front, gap, of) for gap in gaps]
    return {point: max(each.get(point, math.inf) for each in found) for point in range(len(front.front.points))}
