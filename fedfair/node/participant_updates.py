"""Releases of whole updates: the participants of a node sum up their updates, each clipped to one norm.

Source: McMahan et al. 2018 (DP-FedAvg). A participant is to this sum what an example is to DP-SGD's: the same clip
rules scale it, the same queries count it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.gradients.layer_gradients import LayerGradients, norms
from fedfair.mechanisms.randomness import poisson
from fedfair.node.exchanges import content, promise_of_participants
from fedfair.node.node import ClientError, Node
from fedfair.node.noisy_sums import Contribution, is_bounded, with_noise
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


def update_sum(node: Node, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
    """Return the sum of the clipped updates of the node's clients that the round draws, and the counts it asks for.

    Every client adds its share of the noise, drawn or not. Whether a client is drawn is a pure function of (run
    key, round, client). If none is, the sum is zero before the noise. Raises `ValueError` if the round does not say how
    to train and to clip. An update that is not finite adds nothing, and is not counted.
    """
    if round_.rule is None:
        raise ValueError("a sum of updates needs to know how to clip them: the round has no `rule`")
    if not node.clients:
        return Contribution({}, None)
    numbers = node.clients.numbers
    drawn = numbers[poisson(round_.key, round_.step, numbers, round_.rates[0])].tolist()
    sums = {name: torch.zeros_like(value) for name, value in weights.items()}
    kept = [next(iter(weights.values())).new_zeros(0)]
    for clients, updates in node.updates(weights, round_, drawn):
        finite, lengths = _finite(updates, clients, round_)
        kept.append(lengths)
        part = finite.weighted_sum(round_.rule.coefficients(lengths, _alike(lengths)))
        sums = {name: value + part[name] for name, value in sums.items()}
    all_norms, query = torch.cat(kept), round_.query
    counts = None if query is None else query.counts(all_norms, _alike(all_norms), len(round_.rates))
    return with_noise(sums, counts, round_, node.clients)


@exchange("train", promise_of_participants)
def send_update_sum(node: Node, request: Request) -> RecordDict:
    """Send the sum of the clipped updates of the clients that the round draws, with the counts that it asks for."""
    return content(update_sum(node, request.weights, request.round))


def _alike(norms: Tensor) -> Tensor:
    """Return group 0 for every participant, who may hold records of several groups: rule and query treat all alike."""
    return torch.zeros_like(norms, dtype=torch.long)


def _finite(updates: LayerGradients, clients: list[int], round_: Round) -> tuple[LayerGradients, Tensor]:
    """Return the updates that are finite, and their norms; the others add nothing, as if they had not been drawn.

    Raises `ClientError` naming the first of the others only if the round bounds nothing.
    """
    every = norms([updates], updates.squares().values)
    finite = every.isfinite()
    if bool(finite.all()):
        return updates, every
    if not is_bounded(round_):
        client = clients[int((~finite).nonzero()[0])]
        raise ClientError(
            f"client {client} has an update that is not finite at step {round_.step}: nothing was added to the "
            "model; look for extreme values among its records, or take a smaller learning rate")
    return updates.take(finite.nonzero().flatten(), every.dtype), every[finite]
