"""Count queries: how many records of a batch meet a condition, released with Gaussian noise.

Each query puts a record into at most one of its counts, or spreads it over some. Adding or removing a record changes
the counts by at most one: the Euclidean sensitivity of every query is 1. `K` is the number of groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfair.plugins.registry import Registry


class CountQuery(Protocol):
    """Counts over one batch; each record is in at most one of them.

    Examples:
        >>> query: CountQuery = GroupSizes()
        >>> query.counts(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 2]), 3)
        tensor([2., 0., 1.])
    """

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """Return the exact counts.

        Args:
            norms: Per-example gradient norms, `[B]`.
            groups: Group numbers, `[B]`.
            number_of_groups: Number of groups K.

        Returns:
            The counts, in the precision of the norms; the shape depends on the query.
        """


COUNT_QUERIES: Registry[type[CountQuery]] = Registry("count query", ("counts",))
"""The queries that can travel, by name."""


@COUNT_QUERIES.register("group-sizes")
@dataclass(frozen=True)
class GroupSizes:
    """Number of records of each group, `[K]` (Xu et al. 2021, Algorithm 3).

    Examples:
        >>> GroupSizes().counts(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]), 2)
        tensor([2., 1.])
    """

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return torch.bincount(groups, minlength=number_of_groups).to(norms.dtype)


@COUNT_QUERIES.register("above-and-below")
@dataclass(frozen=True)
class AboveAndBelow:
    """Number of gradients of each group above its threshold, and number of its others, `[2, K]`.

    Source: Xu et al. 2021, Algorithm 2, lines 7-8.

    Args:
        thresholds: Threshold of each group, `[K]`; a norm equal to it is not above it.

    Examples:
        >>> AboveAndBelow((1.0, 1.0)).counts(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]), 2)
        tensor([[1., 1.],
                [1., 0.]])
    """

    thresholds: tuple[float, ...]

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        cells = torch.where(norms > norms.new_tensor(self.thresholds)[groups], groups, groups + number_of_groups)
        return torch.bincount(cells, minlength=2 * number_of_groups).view(2, -1).to(norms.dtype)


@COUNT_QUERIES.register("above")
@dataclass(frozen=True)
class Above:
    """Number of gradients above a threshold, `[1]` (Esipova et al. 2023, Algorithm 2, b_t).

    Args:
        threshold: Norm above which a gradient counts.

    Examples:
        >>> Above(2.0).counts(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]), 2)
        tensor([1.])
    """

    threshold: float

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return (norms > self.threshold).sum().to(norms.dtype).view(1)


@COUNT_QUERIES.register("at-most")
@dataclass(frozen=True)
class AtMost:
    """Number of gradients not above a threshold, `[1]` (Andrew et al. 2021, the sum of the bits b_i).

    Args:
        threshold: Norm up to which a gradient counts.

    Examples:
        >>> AtMost(2.0).counts(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]), 2)
        tensor([2.])
    """

    threshold: float

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`."""
        return (norms <= self.threshold).sum().to(norms.dtype).view(1)


@COUNT_QUERIES.register("predictions")
@dataclass(frozen=True)
class Predictions:
    """Sum of the tempered predictions of each group's records, `[K, classes]` (Yaghini et al. 2026, RaCO-DP).

    A record of group k adds softmax(t z) to row k, with z its scores: shares that add up to 1, so at most 1 in
    Euclidean norm. Norms do not tell predictions: an exchange of its own asks for this query.

    Args:
        temperature: Factor t of the scores, above 0; the larger, the nearer to the count of decisions.
        by_label: Whether the records of each label have a row of their own, `[K * classes, classes]`, group by group.

    Examples:
        >>> scores, groups = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), torch.tensor([0, 0, 1])
        >>> Predictions(temperature=1.0).histogram(scores, groups, 2)
        tensor([[1.0000, 1.0000],
                [0.5000, 0.5000]])
        >>> Predictions(temperature=9.0).histogram(scores, groups, 2).round()
        tensor([[1., 1.],
                [0., 0.]])
    """

    temperature: float
    by_label: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for a temperature with which nothing is finite."""
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature of the count query Predictions is {self.temperature!r}: it must be a "
                             "finite number above 0")

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`; raises `ValueError`, whatever the records: predictions do not follow from norms."""
        raise ValueError("the count query Predictions is of scores, not of gradient norms: ask for it by an exchange "
                         "that knows the scores, such as constrained_sums.send_constrained_sum")

    def histogram(self, scores: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """Return the exact sums; a record with scores that are not finite adds zero.

        Args:
            scores: Outputs of the model, `[B, classes]`.
            groups: Group numbers, `[B]`.
            number_of_groups: Number of groups K.
        """
        shares = (self.temperature * scores).softmax(1).nan_to_num(0.0)
        return shares.new_zeros(number_of_groups, shares.shape[1]).index_add_(0, groups, shares)


@COUNT_QUERIES.register("losses")
@dataclass(frozen=True)
class Losses:
    """Sum of the losses of each group's records, `[K]`, in units of a bound that no loss exceeds.

    A record adds min(loss, bound) / bound, at most 1, to the sum of its group. Norms do not tell losses: an exchange of
    its own asks for this query.

    Args:
        bound: Largest loss that is added, above 0.

    Examples:
        >>> Losses(bound=2.0).sums(torch.tensor([0.5, 1.0, 8.0]), torch.tensor([0, 0, 1]), 2)
        tensor([0.7500, 1.0000])
    """

    bound: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a bound that bounds nothing."""
        if not 0 < self.bound < math.inf:
            raise ValueError(f"bound of the count query Losses is {self.bound!r}: it must be a finite number above 0")

    def counts(self, norms: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """See `CountQuery`; raises `ValueError`, whatever the records: losses do not follow from norms."""
        raise ValueError("the count query Losses is of losses, not of gradient norms: ask for it by an exchange that "
                         "knows the losses, such as loss_sums.send_sum_and_losses")

    def sums(self, losses: Tensor, groups: Tensor, number_of_groups: int) -> Tensor:
        """Return the exact sums; a loss that is not finite counts as the bound, and one below 0 as 0.

        Args:
            losses: Losses of the records, `[B]`.
            groups: Group numbers, `[B]`.
            number_of_groups: Number of groups K.
        """
        bounded = (losses / self.bound).nan_to_num(1.0, posinf=1.0).clamp(0, 1)
        return losses.new_zeros(number_of_groups).index_add_(0, groups, bounded)
