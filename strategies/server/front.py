"""A front: classifiers besides the run's model that follow from the same releases, with their figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import torch
from flwr.app import ArrayRecord, Message
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import metrics
from fedfair.fairness.probability_metrics import OF_PROBABILITIES
from fedfair.moments.front import Front
from fedfair.node.front_counts import HELD_OUT
from strategies.server.population import Population
from strategies.server.reply_checks import sender
from strategies.server.tensor_checks import check_counts, check_tensors


class FrontRow(TypedDict):
    """One figure of one classifier on a part of the records; `group` may be "all"."""

    point: int
    split: str
    group: str
    metric: str
    value: float


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
    for split in HELD_OUT:
        for point, confusion in enumerate(_confusions(front, replies, split, population)):
            rows += _rows(point, split, confusion, population.names, favourable)
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


def _rows(point: int, split: str, confusion: Tensor, names: tuple[str, ...], favourable: int | None
          ) -> Iterator[FrontRow]:
    """Yield the figures of a classifier's decisions; none on a part without records."""
    none = torch.zeros(len(confusion), dtype=torch.float64)
    counts = GroupCounts(labels=confusion.sum(2), predicted=confusion.sum(1), correct=confusion.diagonal(0, 1, 2),
                         losses=none, gradient_norms=none)
    for group, metric, value in metrics(counts, names, favourable) if bool(confusion.any()) else ():
        if metric != "loss" and metric not in OF_PROBABILITIES:
            yield FrontRow(point=point, split=split, group=group, metric=metric, value=value)
