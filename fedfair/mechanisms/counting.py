"""Count queries: how many records of a batch meet a condition, released with Gaussian noise.

Each query puts a record into at most one of its counts, so adding or removing one record changes one count by one:
the Euclidean sensitivity is 1 for every query here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfair.plugins.registry import Registry


class CountQuery(Protocol):
    """Counts over one batch, each record in at most one of them."""

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """The exact counts, from gradient norms `[B]` and group numbers `[B]`; the shape depends on the query."""


COUNT_QUERIES: Registry[type[CountQuery]] = Registry("count query")
"""The queries that can travel, by name."""


@COUNT_QUERIES.register("group-sizes")
@dataclass(frozen=True)
class GroupSizes:
    """How many records of each group there are: `[K]` (Xu et al. 2021, Algorithm 3)."""

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return torch.bincount(groups, minlength=number_of_groups).to(norms.dtype)


@COUNT_QUERIES.register("above-and-below")
@dataclass(frozen=True)
class AboveAndBelow:
    """How many gradients of each group exceed its threshold and how many do not: `[2, K]` (Xu et al. 2021, lines 7-8).

    `thresholds` has an entry for each group; a norm equal to it is not above it.
    """

    thresholds: tuple[float, ...]

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        cells = torch.where(norms > norms.new_tensor(self.thresholds)[groups], groups, groups + number_of_groups)
        return torch.bincount(cells, minlength=2 * number_of_groups).view(2, -1).to(norms.dtype)


@COUNT_QUERIES.register("above")
@dataclass(frozen=True)
class Above:
    """How many gradients exceed `threshold`: `[1]` (Esipova et al. 2023, Algorithm 2, b_t)."""

    threshold: float

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return (norms > self.threshold).sum().to(norms.dtype).view(1)


@COUNT_QUERIES.register("at-most")
@dataclass(frozen=True)
class AtMost:
    """How many norms do not exceed `threshold`: `[1]` (Andrew et al. 2021, the sum of the bits b_i)."""

    threshold: float

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return (norms <= self.threshold).sum().to(norms.dtype).view(1)
