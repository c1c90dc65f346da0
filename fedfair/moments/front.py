"""The front: all classifiers of a grid of settings, from one release.

Weights of groups under which the group that is served worst is served better.

The largest of several convex losses is least where weights on the groups are largest for the largest losses. They are
found by multiplicative weights (Freund and Schapire 1999; for groups, Sagawa et al. 2020) on losses that follow from
the released moments, so that all of it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from fedfair.moments.heads import Constraint, Head, constant, constrained, directions, discriminant, least_squares
from fedfair.moments.release import Moments

if TYPE_CHECKING:
    from fedfair.moments.leave_one_out import LeftOut

_STEPS, _RATE = 50, 0.5


def squared_losses(moments: Moments, weights: Tensor) -> Tensor:
    """Return each group's mean squared error of scores against +1 and -1, `[K]`, as the noisy moments tell it.

    Args:
        moments: Moments by group.
        weights: Weights of the classifier, `[d, C]`.
    """
    wanted = 2 * moments.first - moments.first.sum(2, keepdim=True)
    counts = (moments.first[:, -1].sum(1) / moments.last).clamp(min=1.0)
    squares = torch.einsum("dc,kde,ec->k", weights, moments.second, weights)
    products = torch.einsum("dc,kdc->k", weights, wanted)
    return (squares - 2 * products) / counts + moments.first.shape[2]


def group_weights(moments: Moments, strength: float) -> tuple[float, ...]:
    """Return a weight of the records of each group, `[K]`, that are 1 on average over groups of equal size.

    Args:
        moments: Moments by group.
        strength: From 0, all records count alike, to 1, only the largest loss of a group counts.
    """
    groups = len(moments.first)
    counts = (moments.first[:, -1].sum(1) / moments.last).clamp(min=1.0)
    shares = counts / counts.sum()
    logs, total = shares.log(), torch.zeros(groups, dtype=torch.float64)  # losses of noise can be as large as 1e6
    for _ in range(_STEPS):
        chosen = torch.softmax(logs, 0)
        head = least_squares(moments.pooled((chosen / shares).tolist()))
        logs = logs + _RATE * squared_losses(moments, head.weights)
        total += torch.softmax(logs, 0) / _STEPS
    mixed = (1 - strength) * shares + strength * total
    return tuple((mixed / shares).tolist())


HeadName = Literal["least_squares", "equal", "counted", "constant"]
"""A fit by least squares, discriminant analysis with equal or counted priors, or the most frequent class for all."""

TRAINED: Literal["trained"] = "trained"
"""Not fitted to moments, but trained by steps: the only classifier of its front."""

LOGISTIC: Literal["logistic"] = "logistic"
"""Logistic regression, by steps that begin with the moments (`fedfair.moments.logistic`)."""

TAUS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -0.2, -0.3, -0.4, -0.5, -0.6)
FINE_TAUS = tuple(tau / 20 for tau in range(20, -13, -1))
EVEN = 0.5
"""The threshold of the more probable of two classes."""
THRESHOLDS = (0.3, 0.4, 0.45, 0.55, 0.6, 0.7)
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
FLOORS = (1.0, 0.5, 2.0)
FEW_TAUS = (1.0, 0.75, 0.5, 0.25, 0.0, -0.15, -0.3, -0.6)
"""Where every classifier that is compared costs noise."""


class Point(NamedTuple):
    """Settings of one classifier.

    Attributes:
        head: How it is fitted, or trained.
        floor: Factor of the least eigenvalue, in units of what suits the head.
        tau: Share that is left of the differences between groups' mean scores.
        worst_group: How much more weight groups of larger losses have, from 0 to 1.
        threshold: The probability above which the favourable one of two classes is decided for.
    """

    head: HeadName | Literal["trained", "logistic"]
    floor: float = 1.0
    tau: float = 1.0
    worst_group: float = 0.0
    threshold: float = EVEN

    @property
    def name(self) -> str:
        """The point in words, for tables."""
        told = [self.head.replace("_", " ") + (" priors" if self.head in ("equal", "counted", "constant") else "")]
        told += [f"floor {self.floor:g}"] if self.floor != 1 else []
        told += [f"tau {self.tau:g}"] if self.tau != 1 else []
        told += [f"worst group {self.worst_group:g}"] if self.worst_group else []
        told += [f"threshold {self.threshold:g}"] if self.threshold != EVEN else []
        return ", ".join(told)


class Refits(NamedTuple):
    """What noise does to the classifiers of a front, of two classes (`fedfair.moments.refits`).

    Attributes:
        deviations: By how much the weight of either class is off, `[points, d]`, by noise and where rare bins are held
            near 0; NaN where the number of records does not stand out of its noise.
        draws: Weights of the second class in fits with fresh noise, less those of the front, `[draws, points, d]`;
            those of the first class are off by as much the other way.
        changed: Share of the records of each group that a fit with fresh noise decides otherwise, as far as scores are
            normally distributed, `[points, K]`.
        means: Noisy mean features of each group, `[K, d]`, 0 where no record is taken to have one; None in folders of
            before.
        off: Standard deviation of their noise by group, `[K]`.
    """

    deviations: Tensor
    draws: Tensor
    changed: Tensor
    means: Tensor | None = None
    off: Tensor | None = None


class Front(NamedTuple):
    """Classifiers by their settings.

    Attributes:
        points: Settings.
        weights: Weights of each classifier, `[points, d, C]`.
        records: About how many records have each feature but the constant one, 0 where that cannot be told from none,
            `[d - 1]`; None where features are not counted.
        left_out: How training records would be decided, had they not trained it; None where others are held out.
        refits: What noise does to the classifiers; None where that is not known.
    """

    points: tuple[Point, ...]
    weights: Tensor
    records: Tensor | None = None
    left_out: LeftOut | None = None
    refits: Refits | None = None


def heads_for(classes: int) -> tuple[HeadName, ...]:
    """Return how classifiers are fitted; the first is the default.

    Args:
        classes: Number of classes.
    """
    return ("least_squares", "counted", "equal") if classes == 2 else ("equal", "counted", "least_squares")


def points(heads: Sequence[HeadName], constrains: bool, by_group: bool, classes: int, logistic: float | None = None
           ) -> tuple[Point, ...]:
    """Return the grid of settings.

    Args:
        heads: How classifiers are fitted.
        constrains: Whether there are groups that tau can make more alike.
        by_group: Whether the moments are those of each group, so that groups can be weighted.
        classes: Number of classes; thresholds are for two.
        logistic: Floor of the logistic regression; None if there is none.
    """
    taus, fine = (TAUS, FINE_TAUS) if constrains else ((1.0,), (1.0,))
    trained = [Point(LOGISTIC, logistic, tau) for tau in fine] if logistic else []
    fitted = [Point(head, floor, tau) for head, floor, tau in product(heads, FLOORS, taus)]
    even = [*trained, *fitted] if classes == 2 else []
    shifted = [point._replace(threshold=threshold) for point, threshold in product(even, THRESHOLDS)
               if _is_shifted(point)]
    weighted = [Point(head, worst_group=strength) for head, strength in product(heads, STRENGTHS)]
    return (*trained, *fitted, *shifted, *(weighted if by_group else ()), Point("constant"))


def _is_shifted(point: Point) -> bool:
    """Return whether the grid has other thresholds of a point: of every other tau, where scores are probabilities."""
    return point.tau in TAUS[::2] and (point.head == LOGISTIC or (
        point.head == "least_squares" and point.floor in FLOORS[:2]))


def few_points(head: HeadName | Literal["logistic"], floor: float, constrains: bool) -> tuple[Point, ...]:
    """Return a small grid of settings, for figures whose noise grows with the number of classifiers.

    Args:
        head: How classifiers are fitted.
        floor: Factor of the least eigenvalue.
        constrains: Whether there are groups that tau can make more alike.
    """
    return (*(Point(head, floor, tau) for tau in (FEW_TAUS if constrains else (1.0,))), Point("constant"))


def front(moments: Moments, wanted: Sequence[Point], constraint: Constraint, favourable: int | None,
          logistic: Head | None = None) -> Front:
    """Return the classifiers of some settings; none costs anything, since the moments have been released.

    Args:
        moments: What was released.
        wanted: Settings.
        constraint: What tau makes equal.
        favourable: Number of the favourable class, or None.
        logistic: The logistic regression of these moments, if it was trained.

    Raises:
        ValueError: For the setting of a classifier that was trained, but is not given, or for a threshold without a
            favourable class.
    """
    return Front(tuple(wanted), torch.stack(list(_weights(moments, wanted, constraint, favourable, logistic))))


def _weights(moments: Moments, wanted: Sequence[Point], constraint: Constraint, favourable: int | None,
             logistic: Head | None) -> Iterator[Tensor]:
    """Yield the weights `[d, C]` of each point; what several points have in common is computed once."""
    across = directions(moments, constraint, favourable) if any(point.tau != 1 for point in wanted) else None
    heads: dict[Point, Head] = {}
    for point in wanted:
        own = point._replace(tau=1.0, threshold=EVEN)
        if own not in heads:
            heads[own] = logistic if own.head == LOGISTIC and logistic else _head(moments, own)
        alike = heads[own].weights if across is None or point.tau == 1 else constrained(heads[own], across, point.tau)
        yield alike if point.threshold == EVEN else moved(alike, point, moments.last, favourable)


def moved(weights: Tensor, point: Point, last: float, favourable: int | None) -> Tensor:
    """Return the weights of scores that are alike where the favourable class is as probable as the threshold.

    Scores of least squares differ by 2 (2 p - 1), and others by the log of p / (1 - p).

    Args:
        weights: Weights of two classes at the even threshold, `[d, 2]`.
        point: How they were fitted, and the threshold.
        last: The constant last feature.
        favourable: Number of the favourable class.

    Raises:
        ValueError: If no class is favourable.
    """
    if favourable is None:
        raise ValueError(f"a threshold of {point.threshold:g} needs a favourable class: name one by favourable")
    at = point.threshold
    made = weights.clone()
    made[-1, favourable] -= (2 * (2 * at - 1) if point.head == "least_squares" else math.log(at / (1 - at))) / last
    return made


def _head(moments: Moments, point: Point) -> Head:
    """Fit a classifier without a constraint."""
    if point.head in (TRAINED, LOGISTIC):
        raise ValueError("a classifier that was trained by steps follows from no moments: take another head")
    pooled = moments.pooled(group_weights(moments, point.worst_group) if point.worst_group else None)
    if point.head == "constant":
        return constant(pooled)
    if point.head == "least_squares":
        return least_squares(pooled, point.floor)
    return discriminant(pooled, "equal" if point.head == "equal" else "counted", point.floor)
