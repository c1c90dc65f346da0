"""The numbers of records that the server plans with; public by assumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedfair.mechanisms.randomness import key


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

    @cached_property
    def fingerprint(self) -> int:
        """A number that distinguishes this population from others."""
        return key(repr(self))
