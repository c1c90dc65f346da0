"""White-box attacker: what it sees of a run with canaries, and how it scores them.

It sees every message between server and clients, knows every record but the canaries, and knows the gradient that each
canary would have. Under trust "local", and in local epochs, it sees what each client sends; otherwise only every model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedfair.auditing.canaries import AuditedNode, Canaries
from fedfair.gradients.layers import flat
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.noise import Trust
from fedfair.node.exchanges import send_gradient_sum, send_local_epoch
from fedfair.node.participant_updates import send_update_sum
from fedfair.protocol.messages import unpack
from fedfair.protocol.round import LocalEpoch, Round
from simulations.engines.local import LocalGrid
from strategies.server.strategy import Strategy


@dataclass(frozen=True)
class Seen:
    """One round as the attacker sees it, at the canaries' coordinates: the request, the weights before it `[m]`, and
    what each node sent `[nodes, m]`.
    """

    round_: Round
    weights: Tensor
    sent: Tensor


class WatchedGrid(LocalGrid):
    """Local grid that records what the attacker sees of the training messages."""

    def __init__(self, client_app: ClientApp, nodes: int, coordinates: Tensor) -> None:
        super().__init__(client_app, nodes)
        self.coordinates, self.seen = coordinates, list[Seen]()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked))
        failed = any("failure" in reply.content for reply in replies)
        if asked and asked[0].content["exchange"]["name"] in _TRAINING and not failed:
            round_ = Round.from_json(str(asked[0].content["round"]["json"]))
            weights = flat(unpack(asked[0].content, "weights"))[self.coordinates]
            sent = [flat(unpack(reply.content, "sums"))[self.coordinates] for reply in replies]
            self.seen.append(Seen(round_, weights.clone(), torch.stack(sent)))
        return replies


_TRAINING = tuple(exchange.name for exchange in (send_gradient_sum, send_update_sum, send_local_epoch))


def scores(seen: list[Seen], final: Tensor, strategy: Strategy, hosts: list[AuditedNode]) -> Tensor:
    """Score how likely it is that each canary is in: the logarithm of a likelihood ratio, `[m]`.

    `final` `[m]` are the last model's weights at the canaries' coordinates; client c is alone on node c.
    """
    canaries, total = hosts[0].canaries, torch.zeros(len(final), dtype=torch.float64)
    after = [now.weights for now in seen[1:]] + [final]
    for now, following in zip(seen, after, strict=True):
        if now.round_.local is not None:
            total += _after_local_epoch(now, strategy, hosts)
            continue
        real = torch.stack([host.real.get(now.round_.step, torch.zeros_like(final)) for host in hosts])
        if now.round_.trust is Trust.LOCAL:
            added = (now.sent - real)[canaries.clients, torch.arange(len(canaries))]
        else:
            step = strategy.divisor() / step_of(strategy)["lr"]
            added = (now.weights - following) * step - real.sum(0)
        total += _log_likelihood_ratio(added, canaries, now.round_)
    return total


def step_of(strategy: Strategy) -> Mapping[str, Any]:
    """Return how the server steps along a noisy sum: the settings of its optimiser ("lr", "momentum", ...)."""
    return strategy.optimizer({"w": nn.Parameter(torch.zeros(1))}).param_groups[0]


def _log_likelihood_ratio(added: Tensor, canaries: Canaries, round_: Round) -> Tensor:
    """Compare one noisy sum at each canary's coordinate with the canary in the data and without it."""
    signal, deviation = _signal(canaries, round_), expected_deviation(round_, round_.noise_multiplier)
    rate = torch.tensor(round_.rates, dtype=torch.float64)[canaries.groups]
    joined = (added * signal - signal**2 / 2) / deviation**2
    return torch.logaddexp(torch.log1p(-rate), joined + torch.log(rate))


def _after_local_epoch(now: Seen, strategy: Strategy, hosts: list[AuditedNode]) -> Tensor:
    """Compare how each client's local epoch changed the weights, as if the change were Gaussian in either case."""
    local, canaries = now.round_.local, hosts[0].canaries
    assert local is not None
    ratio = torch.zeros(len(canaries), dtype=torch.float64)
    for client, host in enumerate(hosts):
        held = canaries.clients == client
        steps, rate, batch = LocalEpoch.of(strategy.population.by_client[client], local.batch_size)
        if steps == 0 or not bool(held.any()):
            continue
        moved = now.weights - now.sent[client] / local.weights[client]
        first = now.round_.step * steps
        real = torch.stack([host.real[step] for step in range(first, first + steps)]).sum(0)
        added = moved * batch / local.learning_rate - real
        signal = _signal(canaries, now.round_)
        deviation = expected_deviation(now.round_, local.noise_multipliers[client])
        variance = steps * (deviation**2 + rate * (1 - rate) * signal**2)
        expected = steps * rate * signal
        ratio = torch.where(held, (added * expected - expected**2 / 2) / variance, ratio)
    return ratio


def _signal(canaries: Canaries, round_: Round) -> Tensor:
    """Return what each canary adds when it joins a batch: `[m]`."""
    assert round_.rule is not None
    groups = torch.arange(len(round_.rates))
    norms = torch.full((len(groups),), canaries.norm, dtype=torch.float64)
    return (round_.rule.coefficients(norms, groups) * norms)[canaries.groups]


def expected_deviation(round_: Round, noise_multiplier: float) -> float:
    """Return the standard deviation that the noise should have; 1 where there is no noise, or no bound on the sum."""
    assert round_.rule is not None
    bound = sensitivity(round_.rule, len(round_.rates))
    return noise_multiplier * bound if noise_multiplier and math.isfinite(bound) else 1.0
