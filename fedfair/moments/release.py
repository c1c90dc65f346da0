"""Second moments as they were released: noisy sums, and how much noise is in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pooled:
    """Moments of all groups together, each group with a weight.

    Attributes:
        second: S, `[d, d]`.
        first: T, the sums of features by class, `[d, C]`.
        noise_second: Standard deviation of the noise on svec(S).
        noise_first: Standard deviation of the noise on T.
        last: The constant last coordinate of every record's features.
    """

    second: Tensor
    first: Tensor
    noise_second: float
    noise_first: float
    last: float

    @property
    def by_class(self) -> Tensor:
        """Noisy numbers of records of each class, `[C]`, at least one, and at least one deviation of their noise."""
        return (self.first[-1] / self.last).clamp(min=max(1.0, self.noise_first / self.last))


@dataclass(frozen=True)
class Moments:
    """The released sums over all records (`fedfair.moments.sums`).

    Attributes:
        second: S, `[1, d, d]`, or that of each group, `[K, d, d]`.
        first: V, sums of features by group and class, `[K, d, C]`.
        noise: Standard deviation of the noise on every number of svec(S) and of V.
        last: The constant last coordinate of every record's features.
    """

    second: Tensor
    first: Tensor
    noise: float
    last: float

    @property
    def by_group(self) -> bool:
        """Whether S was released for each group."""
        return len(self.second) > 1

    def pooled(self, weights: Sequence[float] | None = None) -> Pooled:
        """Return the moments of all groups together.

        Args:
            weights: Weight of each group's records, `[K]`; None for 1.

        Raises:
            ValueError: For weights without moments of each group.
        """
        groups = len(self.first)
        factors = torch.ones(groups, dtype=torch.float64) if weights is None else torch.tensor(
            weights, dtype=torch.float64)
        if weights is not None and not self.by_group:
            raise ValueError("groups cannot be weighted anew: their second moments were released together, take "
                             "options.by_group = true")
        second = self.second[0] if not self.by_group else torch.einsum("k,kij->ij", factors, self.second)
        sizes = float(factors.norm())
        return Pooled(second, torch.einsum("k,kdc->dc", factors, self.first),
                      self.noise * (sizes if self.by_group else 1.0), self.noise * sizes, self.last)

    def group_means(self, label: int | None = None) -> Tensor:
        """Return the mean features of each group, of the records of one class or of all, `[K, d]`.

        Args:
            label: Number of a class, or None for all classes.
        """
        sums = self.first.sum(2) if label is None else self.first[:, :, label]
        deviation = self.noise * (math.sqrt(self.first.shape[2]) if label is None else 1.0)
        counts = (sums[:, -1] / self.last).clamp(min=max(1.0, deviation / self.last))
        return sums / counts.unsqueeze(1)
