"""The white-box attack on released moments: records of random features, planted at random, and looked for in the sums.

A canary is a record whose features are a random direction of norm 1. It changes the sums by a vector a of norm sqrt(2),
and vectors of different canaries overlap little. The attacker knows all other records and every canary, but not which
canaries are in. It takes from the release what the records add, and half of what all canaries would: what is left along
a is 1 + noise where the canary is in, and -1 + noise where it is not. From gradients of logistic steps, which it reads
off the weights, it takes the same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair import client_app
from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.randomness import generator
from fedfair.moments.filled_bins import Filled
from fedfair.moments.heads import Head
from fedfair.moments.logistic import gradient_of_step
from fedfair.moments.release import Moments as Released
from fedfair.moments.sums import along, moment_sums, unsvec, within_one
from fedfair.node.moment_sums import Wanted
from fedfair.node.node import Node
from simulations.audits.findings import Audit, Guesses, judged
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.engines.run import Progress, conduct
from simulations.settings.experiment import Experiment
from strategies.moments import Moments
from strategies.server.rounds import Rounds


class Planted(NamedTuple):
    """m canaries: features `[m, d]`, labels, groups and clients, and whether each is among the records, `[m]`."""

    x: Tensor
    y: Tensor
    group: Tensor
    clients: Tensor
    included: Tensor


def audit_moments(experiment: Experiment, strategy: Moments, canaries: int, confidence: float, progress: Progress
                  ) -> Audit:
    """Run the experiment once with planted records, and bound epsilon from what a white-box attacker sees.

    Args:
        experiment: A run of moments of records.
        strategy: Its strategy.
        canaries: How many canaries there are; each is among the records with probability 1/2.
        confidence: Confidence of the bounds.
        progress: Called after the round.
    """
    task, wanted = experiment.task, Wanted.of(strategy.asked_besides())
    clients = task.clients_data()
    planted = plant_records(canaries, task.data().train, strategy.population.sizes, experiment.seed)
    nodes = [Node({number: _with(planted, number, parts)}, task.build_model(), "cpu")
             for number, parts in clients.items()]
    seen: list[Released] = []
    heads: list[Head] = []
    bins: list[Filled] = []

    def note(rounds: Rounds, now: int) -> None:
        """Keep what was released, and the weights after each round."""
        assert isinstance(rounds.method, Moments)
        seen.append(rounds.method.released)
        if rounds.method.stepped is not None:
            heads.append(rounds.method.stepped)
        bins.append(rounds.method.bins)

    with client_app.replaced_nodes(task, nodes), quiet_flower():
        result = conduct(experiment, LocalGrid(client_app.app, len(nodes)), progress, watch=note)
    known = [parts.train for parts in clients.values()]
    scores = scores_of(seen[-1], known, planted, wanted)
    told = seen[-1].of_features(bins[-1].kept).pooled()
    for number, (before, after) in enumerate(pairwise(heads), 1):
        gradient = gradient_of_step(before, after, told, number)
        scores = scores + scores_of_step(before, gradient, bins[-1], seen[-1].noise, known, planted)
    return judged("white box", result, Guesses(scores.numpy(), planted.included.numpy(), planted.group.numpy()),
                  confidence)


def plant_records(count: int, train: GroupedDataset, sizes: tuple[tuple[int, ...], ...], seed: int) -> Planted:
    """Make `count` canaries, dealt to the groups in turn, on the client with most records of their group.

    Args:
        count: Number of canaries.
        train: Training records, for the numbers of features, groups and classes.
        sizes: Numbers of records by client and group.
        seed: Seed of the run.
    """
    draws = generator(seed, "planted records")
    x = torch.randn(count, train.x.shape[1], generator=draws, dtype=torch.float64)
    group = torch.arange(count) % len(train.names)
    holders = torch.tensor(sizes).argmax(0)
    return Planted(x / x.norm(dim=1, keepdim=True), torch.randint(train.classes, (count,), generator=draws), group,
                   holders[group], torch.rand(count, generator=draws) < 0.5)


def scores_of(released: Released, known: list[GroupedDataset], planted: Planted, wanted: Wanted) -> Tensor:
    """Score how likely it is that each canary is in, `[m]`: what is left of the release along what it adds.

    Second moments and sums of features count by how much noise they have, with that of the other canaries.

    Args:
        released: What was released.
        known: The records that the attacker knows, by client.
        planted: The canaries.
        wanted: Which sums were apart.
    """
    groups, classes = wanted.groups, released.first.shape[2]
    number = planted.group if groups > 1 else torch.zeros_like(planted.group)
    halves = moment_sums(planted.x, planted.y, number, groups, classes, wanted.by_group)
    second = released.second - unsvec(halves["second"]) / 2
    first = released.first - halves["first"] / 2
    for data in known:
        own = _sums(data, wanted)
        second, first = second - unsvec(own["second"]), first - own["first"]
    parts = number if wanted.by_group else torch.zeros_like(number)
    quadratic = torch.zeros(len(planted.x), dtype=torch.float64)
    for part in range(len(second)):
        rows = parts == part
        quadratic[rows] = torch.einsum("nd,de,ne->n", planted.x[rows], second[part], planted.x[rows])
    count, width = planted.x.shape
    others = count / len(second) * 3 / width**2, count / (groups * classes) / width  # mean of (x'y)^4, and of (x'y)^2
    weighted = _weighted(first, released, others[1] / 4)
    return quadratic / (released.noise**2 + others[0] / 4) + (planted.x * weighted[number, :, planted.y]).sum(1)


def _weighted(first: Tensor, released: Released, others: float) -> Tensor:
    """Return V, each part of it over the variance of its noise and of the other canaries, `[K, d, C]`."""
    if not released.mixing:
        return first / (released.noise**2 + others)
    contrast = along(first)
    return ((first - contrast) / (2 * released.noise**2 + others)
            + contrast / (2 * released.noise**2 / (1 + 2 * len(first)) + others))


def scores_of_step(before: Head, gradient: Tensor, bins: Filled, noise: float, known: list[GroupedDataset],
                   planted: Planted) -> Tensor:
    """Score by one logistic step how likely it is that each canary is in, `[m]`.

    Args:
        before: The classifier before the step, of k features.
        gradient: What it was taken along, `[k, 2]`.
        bins: Which features these are.
        noise: Standard deviation of the noise on a number of the moments, and of a gradient.
        known: The records that the attacker knows, by client.
        planted: The canaries.
    """
    weights, own = bins.lift @ before.weights, planted.x[:, bins.kept]
    errors = _errors(weights, planted.x, planted.y)
    left = gradient[:, 1] - own.T @ errors / 2
    for data in known:
        x = within_one(data.x.double())
        left = left - x[:, bins.kept].T @ _errors(weights, x, data.y)
    count, width = planted.x.shape
    others = count / width * float(errors.square().mean())
    return errors * (own @ left) / (noise**2 / 2 + others / 4)


def _errors(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return by how much the probability of class 1 is off, `[n]`."""
    return torch.softmax(x @ weights, 1)[:, 1] - y.double()


def _sums(data: GroupedDataset, wanted: Wanted) -> Gradients:
    """Return the exact sums over known records."""
    return moment_sums(data.x, data.y, wanted.number(data), wanted.groups, data.classes, wanted.by_group)


def _with(planted: Planted, number: int, parts: Parts) -> Parts:
    """Return a client's parts with its canaries that are in among the training records."""
    rows = planted.included & (planted.clients == number)
    train = parts.train
    fresh = torch.arange(int(rows.sum())) + 2**40
    return replace(parts, train=replace(
        train, x=torch.cat([train.x, planted.x[rows].to(train.x)]), y=torch.cat([train.y, planted.y[rows]]),
        group=torch.cat([train.group, planted.group[rows]]), records=torch.cat([train.records, fresh]),
        participant=train.participant[:0], published=train.published[:0]))
