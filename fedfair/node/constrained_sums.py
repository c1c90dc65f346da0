"""Gradients of a loss with a price on predictions, and a noisy histogram of these: for constraints on rates.

A constraint on how often groups are given each class couples all records of a batch. With its multipliers held fixed it
is a sum over records, `sum_i price[a_i] . softmax(t z_i)`: each record's gradient has a part of it, is clipped as a
whole, and gets noise. The histogram from which the server moves its multipliers is of the same batch, so both are one
event. Sources: RaCO-DP, arXiv 2505.22703; DP-FERMI, arXiv 2210.08781.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.gradients.layer_probe import Loss
from fedfair.gradients.model_state import forgetting
from fedfair.mechanisms.counting import Predictions
from fedfair.node.exchanges import content, promise_sum
from fedfair.node.node import Batch, Node, Objective
from fedfair.node.noisy_sums import Contribution, with_noise
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack
from fedfair.protocol.round import Round, refuse_distrust


@dataclass(frozen=True)
class PricedLoss:
    """A record's loss, plus the price of each class times its tempered prediction.

    Prices are part of the target, so that one loss serves all rounds: a model is tried out once for each loss.

    Args:
        loss: Loss of outputs `[B, C]` and labels `[B]`.
        temperature: Factor of the scores, as in `Predictions`.
    """

    loss: Loss
    temperature: float

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the losses `[B]`.

        Args:
            output: Outputs of the model, `[B, C]`.
            target: The label, then the price of each class, `[B, 1 + C]`.
        """
        predictions = (self.temperature * output).softmax(1)
        return self.loss(output, target[:, 0].long()) + (predictions * target[:, 1:]).sum(1)


def priced(prices: Tensor, by_label: bool, y: Tensor, groups: Tensor) -> Tensor:
    """Return the targets of `PricedLoss`, `[B, 1 + C]`.

    Args:
        prices: Public price of each class for the records of each cell, `[cells, C]`.
        by_label: Whether a cell is a group and a label, or a group.
        y: Labels, `[B]`.
        groups: Group numbers, `[B]`.
    """
    return torch.cat([y.to(prices.dtype)[:, None], prices[_cells(prices.shape[1], by_label, y, groups)]], 1)


def constrained_sum(node: Node, weights: Mapping[str, Tensor], round_: Round, prices: Sequence[float]) -> Contribution:
    """Return the clipped gradient sum of the priced loss and the histogram of predictions, with the clients' noise.

    Args:
        node: The node.
        weights: Weights of the model.
        round_: The round, whose query is `Predictions`.
        prices: Public prices, `[cells * C]`, cell by cell: of each group, or of each group and label.

    Raises:
        ValueError: For another query, or prices that are not of all cells and classes.
    """
    query = _predictions(round_)
    if not node.clients:
        return Contribution({}, None)
    assert round_.rule is not None
    data, groups = node.clients.together.train, len(round_.rates)
    cells = groups * (data.classes if query.by_label else 1)
    if len(prices) != cells * data.classes:
        raise ValueError(f"the server sent {len(prices)} prices for {groups} groups and {data.classes} classes: one of "
                         f"each class for each group{' and label' if query.by_label else ''} is needed")
    table = torch.tensor(list(prices), dtype=next(iter(weights.values())).dtype, device=node.device)
    objective = Objective(PricedLoss(node.loss, query.temperature), partial(priced, table.view(cells, -1),
                                                                            query.by_label))
    batch = node.batch_of(objective, weights, round_)
    sums = batch.probe.weighted_sum(round_.rule.coefficients(batch.probe.norms, batch.groups))
    return with_noise(sums, histogram(node, batch, round_), round_, node.clients)


def histogram(node: Node, batch: Batch, round_: Round) -> Tensor:
    """Return the exact histogram of a batch's predictions, at the weights that the node's model has, `[cells, C]`.

    Args:
        node: The node.
        batch: Its batch.
        round_: The round, whose query is `Predictions`.

    Raises:
        ValueError: For another query.
    """
    query, groups = _predictions(round_), len(round_.rates)
    with torch.no_grad(), forgetting(node.model):
        scores = node.model(batch.x)
    classes = scores.shape[1]
    cells = _cells(classes, query.by_label, batch.y, batch.groups)
    return query.histogram(scores, cells, groups * (classes if query.by_label else 1))


def _cells(classes: int, by_label: bool, y: Tensor, groups: Tensor) -> Tensor:
    """Return the number of each record's cell, `[B]`."""
    return groups * classes + y if by_label else groups


def _predictions(round_: Round) -> Predictions:
    """Return the round's query; raise `ValueError` for another than `Predictions`."""
    if not isinstance(round_.query, Predictions):
        raise ValueError("a constrained sum comes with a histogram of predictions, but the round's query is "
                         f"{type(round_.query).__name__}")
    return round_.query


@exchange("train", promise_sum)
def send_constrained_sum(node: Node, request: Request) -> RecordDict:
    """Send the clipped gradient sum of the priced loss, and the histogram of predictions on the same batch."""
    prices = cast(list[float], request.options["prices"])
    return content(constrained_sum(node, request.weights, request.round, prices))


@exchange("train")
def send_exact_histogram(node: Node, request: Request) -> RecordDict:
    """Send the histogram of the batch's predictions without noise, which only central trust allows."""
    refuse_distrust(request.round, "a penalty on the batch")
    if not node.clients:
        return RecordDict({"counts": pack({})})
    batch = node.batch(request.weights, request.round)
    return RecordDict({"counts": pack({"counts": histogram(node, batch, request.round)})})
