"""Releases of whole updates: the participants of a node sum up their updates, each clipped to one norm.

Source: McMahan et al. 2018 (DP-FedAvg). A participant is to this sum what an example is to DP-SGD's: the same clip
rules scale it, the same queries count it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.mechanisms.sampling import poisson
from fedfair.node.exchanges import content
from fedfair.node.node import ClientError, Contribution, Node, with_noise
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


def update_sum(node: Node, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
    """Return the sum of the clipped updates of the node's clients that the round draws, and the counts it asks for.

    Every client adds its share of the noise, drawn or not. Whether a client is drawn is a pure function of (seed,
    round, client). If none is, the sum is zero before the noise. Raises `ValueError` if the round does not say how to
    train and to clip, and `ClientError` naming a client whose update is not finite.
    """
    if round_.rule is None:
        raise ValueError("a sum of updates needs to know how to clip them: the round has no `rule`")
    if not node.clients:
        return Contribution({}, None)
    numbers = node.clients.numbers
    drawn = numbers[poisson(round_.seed, round_.step, numbers, round_.rates[0])].tolist()
    sums = {name: torch.zeros_like(value) for name, value in weights.items()}
    norms = [next(iter(weights.values())).new_zeros(0)]
    for clients, updates in node.updates(weights, round_, drawn):
        norms.append(_finite(updates.square_norms().sqrt(), clients, round_))
        part = updates.weighted_sum(round_.rule.coefficients(norms[-1], _alike(norms[-1])))
        sums = {name: value + part[name] for name, value in sums.items()}
    all_norms, query = torch.cat(norms), round_.query
    counts = None if query is None else query.counts(all_norms, _alike(all_norms), len(round_.rates))
    return with_noise(sums, counts, round_, node.clients)


@exchange("train")
def send_update_sum(node: Node, request: Request) -> RecordDict:
    """Send the sum of the clipped updates of the clients that the round draws, with the counts that it asks for."""
    return content(update_sum(node, request.weights, request.round))


def _alike(norms: Tensor) -> Tensor:
    """Return group 0 for every participant, who may hold records of several groups: rule and query treat all alike."""
    return torch.zeros_like(norms, dtype=torch.long)


def _finite(norms: Tensor, clients: list[int], round_: Round) -> Tensor:
    """Return the norms; raise `ClientError` naming the first client whose update has a norm that is not finite."""
    for client, finite in zip(clients, norms.isfinite().tolist(), strict=True):
        if not finite:
            raise ClientError(
                f"client {client} has an update that is not finite at step {round_.step}: nothing was added to the "
                "model; look for extreme values among its records, or take a smaller learning rate")
    return norms
