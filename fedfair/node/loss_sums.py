"""The clipped gradient sum of a batch together with the noisy sums of its records' losses by group."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.gradients.model_state import forgetting
from fedfair.mechanisms.counting import Losses
from fedfair.node.exchanges import content, promise_sum
from fedfair.node.node import Batch, Node
from fedfair.node.noisy_sums import Contribution, with_noise
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


def losses_of(node: Node, batch: Batch) -> Tensor:
    """Return the losses of a batch's records, `[B]`, at the weights that the node's model has.

    Args:
        node: The node.
        batch: Its batch.
    """
    with torch.no_grad(), forgetting(node.model):
        return node.loss(node.model(batch.x), batch.y)


def sum_and_losses(node: Node, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
    """Return the clipped gradient sum and the bounded losses by group of one batch, with the clients' noise.

    Args:
        node: The node.
        weights: Weights of the model.
        round_: The round, whose query is `Losses`.

    Raises:
        ValueError: For another query.
    """
    if not isinstance(round_.query, Losses):
        raise ValueError("losses come with a count query of losses, but the round's query is "
                         f"{type(round_.query).__name__}")
    if not node.clients:
        return Contribution({}, None)
    assert round_.rule is not None
    batch = node.batch(weights, round_)
    counts = round_.query.sums(losses_of(node, batch), batch.groups, len(round_.rates))
    sums = batch.probe.weighted_sum(round_.rule.coefficients(batch.probe.norms, batch.groups))
    return with_noise(sums, counts, round_, node.clients)


@exchange("train", promise_sum)
def send_sum_and_losses(node: Node, request: Request) -> RecordDict:
    """Send the clipped gradient sum, and the losses by group on the same batch."""
    return content(sum_and_losses(node, request.weights, request.round))
