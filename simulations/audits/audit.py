"""The white-box attack: put canaries into the batches of a run, and look for them in its noisy sums.

White-box attacker: what it sees of a run with canaries, and how it scores them.

It sees every message between server and clients, knows every record but the canaries, and knows the gradient that each
canary would have. Under trust "local", and in local epochs, it sees what each client sends; otherwise only every model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedfair import client_app
from fedfair.auditing.canaries import AuditedNode, Canaries, plant
from fedfair.gradients.layer_gradients import flat
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.clipping import ClipRule, sensitivity
from fedfair.mechanisms.noise import Trust
from fedfair.node.exchanges import send_gradient_sum, send_local_epoch
from fedfair.node.moment_sums import send_moments
from fedfair.node.participant_updates import send_update_sum
from fedfair.protocol.messages import unpack
from fedfair.protocol.round import Round
from simulations.audits.findings import Audit, Guesses, judged, refuse_confidence
from simulations.audits.planted_records import audit_moments
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.engines.run import Progress, conduct
from simulations.settings.experiment import Experiment
from strategies import find_strategy
from strategies.moments import Moments
from strategies.server.population import Population
from strategies.server.replies.requests import population
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
        steps, rate, batch = local.epoch(client)
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


DEFAULTS: dict[str, Any] = {
    "dataset": "digits", "split": (0.2, 0.0, 0.8), "model": "mlp", "hidden": (300,), "dtype": "float64", "steps": 30,
    "batch_size": 288, "eval_every": 1000, "clip_norm": 1.0, "learning_rate": 1e-3, "delta": 1e-5}
"""Settings of a run that takes seconds, and whose model has room for 20,000 canaries."""


def audit(experiment: Experiment, canaries: int = 20_000, confidence: float = 0.95,
          progress: Progress = lambda *_: None) -> Audit:
    """Run the experiment once with canaries in its batches, and bound epsilon from what a white-box attacker sees.

    Canaries are held in this process, so the engine is "local", with a node for each client. For moments the canaries
    are records (`simulations.audits.planted_records`). Raises `ValueError` for an
    optimiser whose steps the attacker cannot turn back into sums, or for more canaries than parameters, and what `run`
    raises.
    """
    refuse_confidence(confidence)
    strategy = planned(experiment)
    if isinstance(strategy, Moments) and strategy.exchange is send_moments:
        return audit_moments(experiment, strategy, canaries, confidence, progress)
    strategy = attacked(experiment)
    task, sizes = experiment.task, strategy.population
    parameters = sum(parameter.numel() for parameter in task.build_model().parameters())
    planted = plant(canaries, parameters, _holders(sizes), _strongest_norm(strategy.rule(), sizes), experiment.seed)
    hosts = [AuditedNode({number: parts}, task.build_model().to(task.device), task.device, planted)
             for number, parts in task.clients_data().items()]
    grid = WatchedGrid(client_app.app, len(hosts), planted.coordinates)
    with client_app.replaced_nodes(task, hosts), quiet_flower():
        result = conduct(experiment, grid, progress)
    final = flat(trained_parameters(result.model)[0]).detach()[planted.coordinates]
    guesses = Guesses(scores(grid.seen, final, strategy, hosts).numpy(), planted.included.numpy(),
                      planted.groups.numpy())
    return judged("white box", result, guesses, confidence)


def attacked(experiment: Experiment) -> Strategy:
    """Return the strategy of an experiment whose sums can be read off its steps; raise `ValueError` for another."""
    if experiment.optimizer != "sgd" or experiment.weight_decay:
        raise ValueError(f"an audit reads the noisy sums off the steps of plain SGD, but optimizer is "
                         f"{experiment.optimizer!r} with weight_decay {experiment.weight_decay}: take sgd and 0")
    if experiment.sampling != "poisson":
        raise ValueError(f"an audit puts canaries into Poisson samples, but sampling is {experiment.sampling!r}: take "
                         '"poisson", or attack it by membership')
    strategy = planned(experiment)
    if strategy.exchange not in (None, send_update_sum) or strategy.local_exchange is not None:
        raise ValueError(f"strategy {experiment.strategy!r} has no sums of gradients or updates into which canaries "
                         "could be put: attack it by membership")
    if step_of(strategy).get("momentum"):
        raise ValueError(f"an audit reads the noisy sums off plain steps, but the server's have a momentum of "
                         f"{step_of(strategy)['momentum']:g}: take 0")
    if experiment.proximal and strategy.protects == "record":
        raise ValueError(f"an audit reads the noisy sums off plain steps, but those of clients have a proximal term of "
                         f"{experiment.proximal:g}: take 0")
    return strategy


def planned(experiment: Experiment) -> Strategy:
    """Return the strategy of an experiment, over all its records in this process."""
    task = experiment.task
    sizes = population(LocalGrid(client_app.app, 1), task)
    return find_strategy(experiment.strategy)(task, experiment.training, sizes)


def _holders(sizes: Population) -> tuple[int, ...]:
    """Return, for each group, the client with most of its records."""
    return tuple(max(range(len(sizes.sizes)), key=lambda c: sizes.sizes[c][k]) for k in range(len(sizes.names)))


def _strongest_norm(rule: ClipRule, sizes: Population) -> float:
    """Choose a gradient norm of which the rule leaves most: one of the rule's own numbers, or a huge one."""
    numbers = np.concatenate([np.atleast_1d(value) for value in vars(rule).values()] or [np.ones(1)])
    groups = torch.arange(len(sizes.names))

    def left(norm: float) -> float:
        """Sum over the groups what the rule leaves of gradients of this norm."""
        norms = torch.full((len(groups),), norm, dtype=torch.float64)
        return round(float((rule.coefficients(norms, groups) * norms).sum()), 9)

    return float(max([1e6 * float(numbers.max()), *numbers.tolist()], key=left))
