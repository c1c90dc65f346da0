"""Sums of clipped gradients that weigh more the larger a record's loss is among those of its client's batch.

A client sorts the records of its batch by loss, the smallest first; the record at place j, from 0, has the weight

    w_j = min(1, (j + 1) / reach),

which never falls along the batch. A record more, at place j, adds w_j g, and moves those after it up by one place:
their gradients change the sum by at most C (w_{j+1} - w_j) + C (w_{j+2} - w_{j+1}) + ..., which telescopes. Together
that is at most C times the last weight, so at most C. A record is on one client, so the same holds for the sum over all
clients. Source: INO-SGD, arXiv 2605.07930.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.mechanisms.clipping import Flat
from fedfair.node.exchanges import content, promise_sum
from fedfair.node.loss_sums import losses_of
from fedfair.node.node import Node
from fedfair.node.noisy_sums import Contribution, with_noise
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


def rank_weights(losses: Tensor, reach: float) -> Tensor:
    """Return the weights of the records of one client's batch, `[B]`.

    Args:
        losses: Their losses, `[B]`; of equal ones, earlier records come first.
        reach: Number of records at the low end that weigh less than 1; public.
    """
    places = torch.empty_like(losses)
    places[losses.argsort(stable=True)] = torch.arange(1, len(losses) + 1, dtype=losses.dtype, device=losses.device)
    return (places / max(reach, 1.0)).clamp(max=1.0)


def ranked_sum(node: Node, weights: Mapping[str, Tensor], round_: Round, reach: Sequence[float]) -> Contribution:
    """Return the clipped gradient sum, weighted by ranks within each client's batch, with the clients' noise.

    Args:
        node: The node.
        weights: Weights of the model.
        round_: The round, whose rule is one clip norm for all.
        reach: By client of the run, how many records at the low end weigh less than 1.

    Raises:
        ValueError: For another rule, which the proof does not hold for, or a reach that is no finite number from 0 up
            for each client.
    """
    if not isinstance(round_.rule, Flat):
        raise ValueError("ranked sums need one clip norm for all groups, but the round's rule is "
                         f"{type(round_.rule).__name__}")
    if not all(0 <= number < math.inf for number in reach):
        raise ValueError(f"the server sent the reach {list(reach)}: finite numbers from 0 up are needed")
    if not node.clients:
        return Contribution({}, None)
    if len(reach) <= max(node.clients):
        raise ValueError(f"the server sent the reach of {len(reach)} clients, but one is numbered {max(node.clients)}")
    batch = node.batch(weights, round_)
    losses, owners = losses_of(node, batch), node.clients.holders("train")[batch.rows.cpu()].to(node.device)
    factors = round_.rule.coefficients(batch.probe.norms, batch.groups)
    for number in node.clients:
        own = owners == number
        factors[own] *= rank_weights(losses[own], reach[number])
    return with_noise(batch.probe.weighted_sum(factors), None, round_, node.clients)


@exchange("train", promise_sum)
def send_ranked_sum(node: Node, request: Request) -> RecordDict:
    """Send the clipped gradient sum, weighted by the ranks of losses."""
    reach = cast(list[float], request.options["reach"])
    return content(ranked_sum(node, request.weights, request.round, reach))
