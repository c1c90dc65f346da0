"""Second moments as they were released: noisy sums, and how much noise is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedfair.moments.sums import deviation


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
    def records(self) -> Tensor:
        """Noisy number of records."""
        return self.second[-1, -1] / self.last**2

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
        noise_by_group: The same for the numbers of each group alone, V_k and, by group, S_k, `[K]`; None for `noise`.
        mixing: Whether the noise was added to A V (`fedfair.moments.sums`).
    """

    second: Tensor
    first: Tensor
    noise: float
    last: float
    noise_by_group: tuple[float, ...] | None = None
    mixing: bool = False

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
        return Pooled(second, torch.einsum("k,kdc->dc", factors, self.first),
                      self._noise_of_second(factors) if self.by_group else self.noise, self._noise_of_class(factors),
                      self.last)

    def sum_of_features(self) -> tuple[Tensor, float]:
        """Return the sum of the features over all records, `[d]`, and the standard deviation of its noise."""
        groups, classes = len(self.first), self.first.shape[2]
        if not self.mixing:
            each = self._noise_of_second(torch.ones(groups, dtype=torch.float64))
            return self.first.sum((0, 2)), each * classes**0.5
        return self.first.sum((0, 2)), self.noise * deviation(torch.ones(groups, classes, dtype=torch.float64), True)

    @property
    def noise_of_contrast(self) -> float:
        """Standard deviation of the noise on the sums of the features of one class less those of another."""
        if not self.mixing:
            return self._noise_of_class(torch.ones(len(self.first), dtype=torch.float64)) * 2**0.5
        return self.noise * deviation(torch.tensor([[-1.0, 1.0]], dtype=torch.float64).repeat(len(self.first), 1), True)

    def of_features(self, kept: Tensor) -> Moments:
        """Return the moments of some features alone.

        Args:
            kept: Their positions, `[k]`; the constant last feature is among them.
        """
        return replace(self, second=self.second[:, kept][:, :, kept], first=self.first[:, kept])

    def group_means(self, label: int | None = None) -> Tensor:
        """Return the mean features of each group, of the records of one class or of all, `[K, d]`."""
        sums = self.first.sum(2) if label is None else self.first[:, :, label]
        least = sums.new_tensor([max(1.0, self._noise_of_group(group, label) / self.last)
                                 for group in range(len(sums))])
        return sums / torch.maximum(sums[:, -1] / self.last, least).unsqueeze(1)

    def noise_of_group_means(self) -> Tensor:
        """Return the standard deviation of the noise on each group's mean features, of all its records, `[K]`.

        That of the number of records, by which sums are divided, is left out: it is small beside the number.
        """
        noises = self.first.new_tensor([self._noise_of_group(group, None) for group in range(len(self.first))])
        records = self.first.sum(2)[:, -1] / self.last
        return noises / torch.maximum(records, (noises / self.last).clamp(min=1.0))

    def _noise_of_group(self, group: int, label: int | None) -> float:
        """Return the deviation of the noise on a number of a group's sum, over one class or all."""
        own = self.noise if self.noise_by_group is None else self.noise_by_group[group]
        coefficients = torch.zeros(len(self.first), self.first.shape[2], dtype=torch.float64)
        coefficients[group, slice(None) if label is None else label] = 1.0
        return own * deviation(coefficients, self.mixing)

    def _noise_of_class(self, factors: Tensor) -> float:
        """Return the deviation of the noise on a number of a class's sum over groups, each times its factor."""
        if not self.mixing:
            return self._noise_of_second(factors)
        coefficients = torch.zeros(len(factors), self.first.shape[2], dtype=torch.float64)
        coefficients[:, 0] = factors
        return self.noise * deviation(coefficients, True)

    def _noise_of_second(self, factors: Tensor) -> float:
        """Return the deviation of the noise on a number of the sum over groups of S_k, each times its factor."""
        if self.noise_by_group is None:
            return self.noise * float(factors.norm())
        return float((factors * factors.new_tensor(self.noise_by_group)).norm())
