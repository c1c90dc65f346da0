"""Canaries: records that exist only as gradients, and participants that exist only as updates.

They are sampled like records, clipped by the round's rule with their batch, counted by its query and covered by its
noise: the mechanism cannot distinguish them from records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.layer_gradients import Gradients, LayerGradients, Squares, flat, shaped
from fedfair.gradients.layer_probe import Probe
from fedfair.mechanisms.randomness import generator, poisson
from fedfair.node.node import Batch, Node
from fedfair.protocol.round import Round


@dataclass(frozen=True)
class Canaries:
    """m canaries: the gradient of the j-th is `norm` along coordinate `coordinates[j]` of all parameters, 0 elsewhere.

    Such gradients ("Dirac", Nasr et al. 2023) do not disturb each other. `groups` `[m]` are group numbers, `clients`
    `[m]` are the clients that hold the canaries, and `included` `[m]` says whether each is in the training data.
    """

    coordinates: Tensor
    groups: Tensor
    clients: Tensor
    included: Tensor
    norm: float

    def __len__(self) -> int:
        return len(self.coordinates)


def plant(count: int, parameters: int, holders: tuple[int, ...], norm: float, seed: int) -> Canaries:
    """Make `count` canaries on distinct coordinates, dealt to the groups in turn, each included with probability 1/2.

    `holders` are the clients that hold each group's canaries, `[K]`. Raises `ValueError` if there are fewer parameters
    than canaries.
    """
    if count > parameters:
        raise ValueError(f"canaries is {count}, but the model has {parameters} parameters, and each canary needs "
                         "one of its own: take fewer canaries, or a larger model")
    groups = torch.arange(count) % len(holders)
    return Canaries(torch.randperm(parameters, generator=generator(seed, "canary coordinates"))[:count], groups,
                    torch.tensor(holders)[groups],
                    torch.rand(count, generator=generator(seed, "canary inclusion")) < 0.5, norm)


class AuditedNode(Node):
    """A node of one client that holds canaries besides its records.

    `real` holds, by step, what the records (or participants) without the canaries added to the sum, at the canaries'
    coordinates: the attacker may know all records but one.
    """

    def __init__(self, clients: Mapping[int, Parts], model: nn.Module, device: str, canaries: Canaries) -> None:
        super().__init__(clients, model, device)
        self.canaries, self.real = canaries, dict[int, Tensor]()

    def _sample(self, data: GroupedDataset, weights: Mapping[str, Tensor], round_: Round, rows: Tensor) -> Batch:
        """See `Node`; the canaries come last, and have neither `x` nor `y`."""
        batch = super()._sample(data, weights, round_, rows)
        canaries, joined = self.canaries, self._joined(round_)
        return Batch(_WithCanaries(batch.probe, self, joined, round_.step),
                     torch.cat([batch.groups, canaries.groups[joined].to(batch.groups)]), batch.x, batch.y, batch.rows)

    def updates(self, weights: Mapping[str, Tensor], round_: Round, drawn: Sequence[int]
                ) -> Iterator[tuple[list[int], LayerGradients]]:
        """See `Node`; the canaries come last, as participants."""
        self.real[round_.step] = torch.zeros_like(flat(weights)[self.canaries.coordinates], device="cpu")
        for clients, updates in super().updates(weights, round_, drawn):
            yield clients, _Noted(updates, self, round_.step)
        joined = self._joined(round_)
        yield self.canaries.clients[joined].tolist(), _CanaryUpdates(weights, self.canaries, joined)

    def _joined(self, round_: Round) -> Tensor:
        """Return the numbers of this node's canaries that are drawn for the round."""
        held = torch.nonzero(self.canaries.included & torch.isin(self.canaries.clients, self.clients.numbers)).flatten()
        rates = torch.tensor(round_.rates, dtype=torch.float64)[self.canaries.groups[held]]
        return held[poisson(round_.key, round_.step, 2**40 + held, rates)]


class _Noted:
    """Updates of participants; their clipped sum is noted in the node's `real`."""

    def __init__(self, updates: LayerGradients, node: AuditedNode, step: int) -> None:
        self.squares, self.dot = updates.squares, updates.dot
        self._updates, self._node, self._step = updates, node, step

    def take(self, rows: Tensor, dtype: torch.dtype) -> LayerGradients:
        """See `LayerGradients`."""
        return _Noted(self._updates.take(rows, dtype), self._node, self._step)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        sums = self._updates.weighted_sum(coefficients)
        self._node.real[self._step] += flat(sums)[self._node.canaries.coordinates].cpu()
        return sums


class _CanaryUpdates:
    """The updates of the canaries numbered `joined`."""

    def __init__(self, like: Mapping[str, Tensor], canaries: Canaries, joined: Tensor) -> None:
        self._like, self._zero = like, torch.zeros_like(flat(like))
        self._canaries, self._joined = canaries, joined
        self._norm, self._coordinates = canaries.norm, canaries.coordinates[joined]

    def squares(self) -> Squares:
        """See `LayerGradients`."""
        values = self._zero.new_full((len(self._coordinates),), self._norm**2)
        return Squares(values, torch.zeros_like(values))

    def take(self, rows: Tensor, dtype: torch.dtype) -> LayerGradients:
        """See `LayerGradients`."""
        zero = self._zero.to(dtype)
        return _CanaryUpdates(shaped(zero, self._like), self._canaries, self._joined[rows])

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `LayerGradients`."""
        return flat(direction)[self._coordinates] * self._norm

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        return shaped(self._zero.index_put((self._coordinates,), coefficients * self._norm), self._like)


class _WithCanaries:
    """A batch's probe, followed by the canaries numbered `joined`."""

    def __init__(self, probe: Probe, node: AuditedNode, joined: Tensor, step: int) -> None:
        self._probe, self._node, self._joined, self._step = probe, node, joined, step
        self.norms = torch.cat([probe.norms, probe.norms.new_full((len(joined),), node.canaries.norm)])
        self.losses = torch.cat([probe.losses, probe.losses.new_zeros(len(joined))])

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `Probe`."""
        along = flat(direction)[self._node.canaries.coordinates[self._joined]] * self._node.canaries.norm
        return torch.cat([self._probe.dot(direction), along])

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `Probe`."""
        records, canaries = len(self._probe.norms), self._node.canaries
        sums = self._probe.weighted_sum(coefficients[:records])
        total = flat(sums).clone()
        self._node.real[self._step] = total[canaries.coordinates].cpu()
        total[canaries.coordinates[self._joined]] += coefficients[records:] * canaries.norm
        return shaped(total, sums)
