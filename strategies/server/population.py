"""The sizes that the server plans with; public by assumption."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedfair.mechanisms.randomness import key


@dataclass(frozen=True)
class Population:
    """The names of the K groups, and how many training records each client has of each: `sizes[client][group]`; how
    many validation records each group has, and the client with the most of them, `most_valid`; and the `labels`, the
    names of the classes.
    """

    names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    valid: tuple[int, ...]
    labels: tuple[str, ...]
    most_valid: int = 0

    @property
    def classes(self) -> int:
        """How many classes there are."""
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
        """A number that tells this population from others."""
        return key(repr(self))
