"""Canaries: records that exist only as gradients, put into every batch where a real record would be.

They are sampled like records, clipped by the round's rule with their batch, counted by its query and covered by its
noise: what clips, counts and adds noise does not know of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients import Probe
from fedfair.host import Batch, Host
from fedfair.layers import Gradients
from fedfair.randomness import generator
from fedfair.rounds import Round
from fedfair.sampling import poisson


@dataclass(frozen=True)
class Canaries:
    """m canaries; the gradient of the j-th is `norm` in direction of coordinate `coordinates[j]` of all parameters.

    Such gradients ("Dirac", Nasr et al. 2023) do not disturb each other. `groups`, `clients` and `included` `[m]` are
    group numbers, the clients that hold them, and whether they are in the training data at all.
    """

    coordinates: Tensor
    groups: Tensor
    clients: Tensor
    included: Tensor
    norm: float

    def __len__(self) -> int:
        return len(self.coordinates)


def plant(count: int, parameters: int, holders: tuple[int, ...], norm: float, seed: int) -> Canaries:
    """`count` canaries on distinct coordinates, dealt to the groups in turn, each in with probability 1/2.

    `holders` names the client of each group's canaries. Raises `ValueError` if there are fewer parameters.
    """
    if count > parameters:
        raise ValueError(f"canaries is {count}, but the model has {parameters} parameters, and each canary needs "
                         "one of its own: take fewer canaries, or a larger model")
    groups = torch.arange(count) % len(holders)
    return Canaries(torch.randperm(parameters, generator=generator(seed, "canary coordinates"))[:count], groups,
                    torch.tensor(holders)[groups],
                    torch.rand(count, generator=generator(seed, "canary inclusion")) < 0.5, norm)


class AuditedHost(Host):
    """A host of one client, which holds canaries besides its records.

    `real` keeps, by step, what the records without the canaries added to the sum, at the canaries' coordinates: an
    attacker may know all records but one.
    """

    def __init__(self, clients: Mapping[int, Parts], model: nn.Module, device: str, canaries: Canaries) -> None:
        super().__init__(clients, model, device)
        self.canaries, self.real = canaries, dict[int, Tensor]()

    def _sample(self, data: GroupedDataset, weights: Mapping[str, Tensor], round_: Round, rows: Tensor) -> Batch:
        """See `Host`; the canaries come last, and have neither `x` nor `y`."""
        batch = super()._sample(data, weights, round_, rows)
        canaries = self.canaries
        own = torch.nonzero(canaries.included & torch.isin(canaries.clients, self.clients.numbers)).flatten()
        rates = torch.tensor(round_.rates, dtype=torch.float64)[canaries.groups[own]]
        joined = own[poisson(round_.seed, round_.step, 2**40 + own, rates)]
        return Batch(_WithCanaries(batch.probe, self, joined, round_.step),
                     torch.cat([batch.groups, canaries.groups[joined]]), batch.x, batch.y)


class _WithCanaries(Probe):
    """A batch's probe, followed by the canaries numbered `joined`."""

    def __init__(self, probe: Probe, host: AuditedHost, joined: Tensor, step: int) -> None:
        self._probe, self._host, self._joined, self._step = probe, host, joined, step
        self.norms = torch.cat([probe.norms, probe.norms.new_full((len(joined),), host.canaries.norm)])
        self.losses = torch.cat([probe.losses, probe.losses.new_zeros(len(joined))])

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `Probe`."""
        along = flat(direction)[self._host.canaries.coordinates[self._joined]] * self._host.canaries.norm
        return torch.cat([self._probe.dot(direction), along])

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `Probe`."""
        records, canaries = len(self._probe.norms), self._host.canaries
        sums = self._probe.weighted_sum(coefficients[:records])
        total = flat(sums).clone()
        self._host.real[self._step] = total[canaries.coordinates]
        total[canaries.coordinates[self._joined]] += coefficients[records:] * canaries.norm
        pieces = torch.split(total, [value.numel() for value in sums.values()])
        return {name: piece.view_as(value) for (name, value), piece in zip(sums.items(), pieces, strict=True)}


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """All numbers of the tensors in one row."""
    return torch.cat([value.flatten() for value in tensors.values()])
