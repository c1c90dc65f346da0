"""The numbers of records that the server plans with; public by assumption.

Clients that would spoil a guarantee: with a single record, whose group their public numbers tell, or made up. And for
methods that compare groups, what takes sums by group to differences of means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import key
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task


@dataclass(frozen=True)
class Population:
    """Numbers of records by client and group.

    Args:
        names: Names of the groups, `[K]`.
        sizes: Numbers of training records by client and group, `[clients][K]`.
        valid: Numbers of validation records by group, `[K]`.
        labels: Names of the classes.
        most_valid: Number of validation records of the client that has most of them.
        holders: Numbers of the clients that each Flower node said at first that it holds.
    """

    names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    valid: tuple[int, ...]
    labels: tuple[str, ...]
    most_valid: int = 0
    holders: Mapping[int, range] = field(default_factory=dict, repr=False, compare=False)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.labels)

    @cached_property
    def records(self) -> int:
        """N, the number of training records."""
        return sum(map(sum, self.sizes))

    @cached_property
    def by_group(self) -> tuple[int, ...]:
        """N_k, the number of training records of each group."""
        return tuple(map(sum, zip(*self.sizes, strict=True)))

    @cached_property
    def by_client(self) -> tuple[int, ...]:
        """N_c, the number of training records of each client."""
        return tuple(map(sum, self.sizes))

    def groups_are_classes(self, task: Task) -> bool:
        """Return whether groups are nothing else than classes, as everybody can see by the columns that hold them.

        Of a data set without such columns their own names say so. Names of a table do not: both may be 0 and 1.

        Args:
            task: The data.
        """
        columns = {*task.attributes} - {None}
        if task.label is None or not columns:
            return self.names == self.labels
        return columns == {task.label}

    @cached_property
    def fingerprint(self) -> int:
        """A number that distinguishes this population from others."""
        return key(repr(self))


def refuse_claimed_sites(population: Population, task: Task, trust: Trust) -> None:
    """Raise `ValueError` if nodes with files of their own say that several clients share the noise.

    How many sites a node has is its own word. One that says many more than it has would leave the others a small share
    of the noise each, which nobody makes up for.
    """
    several = [node for node, clients in population.holders.items() if len(clients) > 1]
    if several and task.partition == NODES and trust is Trust.DISTRIBUTED:
        raise ValueError(f"node {several[0]} holds {len(population.holders[several[0]]):,} sites as clients, and trust "
                         'is "distributed", where clients share the noise and must be known to be there: let each '
                         'node be one client (without site), or take trust = "local"')


def refuse_single_records(population: Population, trust: Trust, step: int) -> None:
    """Raise `ValueError` if clients that trust nobody tell of a single record: its number is its group.

    Clients tell numbers of records by group, rounded up to multiples of `step`; of a client that tells of one `step` in
    one group it is not known whether it holds more than one record. Where the server is trusted it may know that.
    """
    if trust is not Trust.LOCAL:
        return
    single = [client for client, size in enumerate(population.by_client) if size == step]
    if single:
        holds = "a single record" if step == 1 else f"at most {step} records, all of one group, perhaps a single one"
        raise ValueError(f"client {single[0]} holds {holds}, and so do {len(single) - 1:,} others; trust is 'local', "
                         "but numbers of records by client and group are public, and of a single record they tell the "
                         "group, which no noise hides: take fewer clients, which hold more each, or trust = \"central\""
                         " with a server that may know it; a larger round_sizes does not help, since a group without "
                         "records stays at 0")


def differences(method: str, population: Population) -> Tensor:
    """Return the matrix that takes sums by group to differences of means, `[K, K]`: each group's, less all others'.

    A row is zero for a group without records. Raises `ValueError` unless two groups have some.

    Args:
        method: Name of the method, for errors.
        population: Public sizes of the groups.
    """
    sizes = torch.tensor(population.by_group, dtype=torch.float64)
    if int((sizes > 0).sum()) < 2:
        raise ValueError(f"{method} compares groups, but only {int((sizes > 0).sum())} has training records here "
                         f"({', '.join(population.names)}): choose a column with more values as group")
    others = -(1 / (sizes.sum() - sizes))[:, None].expand(len(sizes), len(sizes))
    matrix = others.clone()
    matrix.diagonal().copy_(1 / sizes.clamp(min=1))
    return matrix * (sizes > 0)[:, None]


def refuse_weights(method: str, task: Task) -> None:
    """Raise `ValueError` for weights of records or classes: rates count all records alike.

    Args:
        method: Name of the method, for errors.
        task: The task, with its weights.
    """
    if task.record_weight or task.class_weights:
        raise ValueError(f"{method} counts all records alike: leave record_weight and class_weights out")
