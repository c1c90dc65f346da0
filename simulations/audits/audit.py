"""The white-box attack: put canaries into the batches of a run, and look for them in its noisy sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedfair import client_app
from fedfair.auditing.canaries import AuditedNode, plant
from fedfair.gradients.layers import flat
from fedfair.gradients.parameters import trained_parameters
from fedfair.mechanisms.clipping import ClipRule
from fedfair.node.exchanges import send_gradient_sum
from fedfair.node.moment_sums import send_moments
from fedfair.node.participant_updates import send_update_sum
from simulations.audits.findings import Audit, Guesses, judged, refuse_confidence
from simulations.audits.planted_records import audit_moments
from simulations.audits.white_box import WatchedGrid, scores, step_of
from simulations.engines.local import LocalGrid
from simulations.engines.quiet import quiet_flower
from simulations.engines.run import Progress, conduct
from simulations.settings.experiment import Experiment
from strategies import Strategy, find_strategy
from strategies.moments import Moments
from strategies.server.population import Population
from strategies.server.requests import population

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
    strategy = planned(experiment)
    if strategy.exchange not in (send_gradient_sum, send_update_sum):
        raise ValueError(f"strategy {experiment.strategy!r} has no sums of gradients or updates into which canaries "
                         "could be put: attack it by membership")
    if step_of(strategy).get("momentum"):
        raise ValueError(f"an audit reads the noisy sums off plain steps, but the server's have a momentum of "
                         f"{step_of(strategy)['momentum']:g}: take 0")
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
