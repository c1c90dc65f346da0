"""How the scores of a linear classifier lie over records, as released second moments S tell.

S tells their mean and variance, and they are about normal: most of what is said of logistic regression here rests on
that. Where nearly all records of the rarer class are in one bin, they are not: their distribution has a long tail, and
with it the mean probability is another one than that of normal scores. S tells that too. With one feature a column for
each record, the records of bin j have the mean score (S w)_j / sum_i phi_ij, and vary about it by what scores vary
beside that column. So each column gives a mixture of normal distributions. It counts by the variance of scores between
its bins: where they differ little, all that is not normal is hidden in what is taken to be.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PLACES = torch.linspace(-6.0, 6.0, 400, dtype=torch.float64)
"""Deviations from the mean, over which a mean over normal scores is a sum."""

DENSITY = torch.softmax(-PLACES.square() / 2, 0)
"""How much of all records is at each place."""

_WITHIN = 0.05  # least share of the variance of scores that is within the bins of a column
_FARTHEST, _HALVINGS = 6.0, 30  # of a change of the constant score
_EXACT = 1e-9  # least sum that is divided by


class Scores(NamedTuple):
    """Normal scores of some records.

    Attributes:
        mean: Their mean, a number or one for each of several distributions, `[...]`.
        deviation: Their standard deviation, of the same shape.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, weights: Tensor, second: Tensor, last: float) -> Scores:
        """Return the scores of all records.

        Args:
            weights: Weights of the difference of scores, `[k]`.
            second: S, `[k, k]`.
            last: The constant last coordinate of every record's features.
        """
        records = (second[-1, -1] / last**2).clamp(min=1.0)
        mean = second[-1] @ weights / last / records
        return cls(mean, (weights @ second @ weights / records - mean**2).clamp(min=0.0).sqrt())

    @property
    def places(self) -> Tensor:
        """Scores at `PLACES`, `[..., places]`."""
        return self.mean[..., None] + self.deviation[..., None] * PLACES

    @property
    def probability(self) -> Tensor:
        """Mean probability of class 1, `[...]`."""
        return torch.sigmoid(self.places) @ DENSITY


def constant_missed(weights: Tensor, second: Tensor, last: float, column: Tensor) -> float:
    """Return what has to be added to all scores, since they are not normal.

    With it the mean probability by bins is that of normal scores before, which is what the releases tell.

    Args:
        weights: Weights of the difference of scores, `[k]`; the last is that of the constant feature.
        second: S of categories and bins, `[k, k]`.
        last: The constant last coordinate of every record's features.
        column: The number of the column of each feature, `[k]`; -1 for the constant one.
    """
    whole = Scores.of(weights, second, last)
    sums = (second[:-1, -1] / last).clamp(min=_EXACT)
    numbers = sums.square() / second.diagonal()[:-1].clamp(min=_EXACT)
    of_column = torch.nn.functional.one_hot(column[:-1]).double()
    shares = numbers / (of_column @ (of_column.T @ numbers))
    means = (second @ weights)[:-1] / sums
    between = of_column.T @ (shares * (means - whole.mean).square())
    within = (whole.deviation**2 - of_column @ between).clamp(min=_WITHIN * float(whole.deviation) ** 2).sqrt()
    each, wanted = shares * (of_column @ ((between + _EXACT) / (between + _EXACT).sum())), float(whole.probability)
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        less = float(each @ Scores(means + middle, within).probability) < wanted
        low, high = (middle, high) if less else (low, middle)
    return (low + high) / 2
