"""Logistic regression in few steps: released moments say where to start and which way to step.

Least squares is not logistic regression, but it is near, and the moments hold its curvature too. From

    w_0 = 1.5 times the least squares fit,      w_j = w_(j-1) - 2/(j+1) P^-1 g_j / h_j

with g_j = sum_i phi_i (p_i - y_i) at w_(j-1), which is a release of its own, P the S of the least squares fit
(eigenvalues in the noise raised), and h_j the mean of p (1 - p) where scores are normal with the mean and variance
that the moments tell. That is Newton's method with h S in place of the Hessian. Each of its steps alone would end at
the minimum, but for the noise of its gradient; strides of 2/(j+1) average these ends with weights that grow as j, so
that noise averages out too (Lacoste-Julien, Schmidt and Bach 2012). The curvature of a record is at most 1/4
of phi phi', so h is taken as 1/8 at least: then no direction is stepped along for more than twice Newton's step, and no
step raises the loss but by noise.

|phi_i (p_i - y_i)| <= 1, so no gradient has to be clipped. With a clip norm C < 1 those of records that are decided
most wrongly are, and noise is C times as large: the loss that is minimised is linear, no longer logistic, beyond
|p - y| = C, as Huber's is. At small epsilon that is worth more than it costs (`docs/moments.md`). Scores of two
classes, z_0 = -z_1, have the gradients -g and g.

Newton's method with noise on gradient and curvature: Avella-Medina, Bradshaw and Loh 2023; Ganesh et al. 2023.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedfair.moments.heads import Head, least_squares
from fedfair.moments.release import Pooled

AUTO_STEPS = 3
"""Steps that "auto" takes where there are two classes."""

START = 1.5
"""Times the least squares fit, where the steps begin."""
_FLATTEST = 1 / 8  # the least h
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(9))

PLACES = torch.linspace(-6.0, 6.0, 400, dtype=torch.float64)
"""Deviations from the mean, over which a mean over normal scores is a sum."""

DENSITY = torch.softmax(-PLACES.square() / 2, 0)
"""How much of all records is at each place."""


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


class Course(NamedTuple):
    """A logistic regression as it was trained: where it began, and where each step led.

    Attributes:
        moments: The moments of all groups that it began with, of k features and two classes.
        floor: Factor of the least eigenvalue, half of the noise's spectral norm.
        path: Weights of the difference of scores before the first step and after each, `[steps + 1, k]`.
        noises: Standard deviation of the noise on every number of each step's gradient, `[steps]`.
        clip: Clip norm C of a record's gradient.
    """

    moments: Pooled
    floor: float
    path: Tensor
    noises: tuple[float, ...]
    clip: float = 1.0

    @property
    def slopes(self) -> list[float]:
        """Mean of p (1 - p) before each step, h, `[steps]`."""
        return [slope(opposite(before), self.moments) for before in self.path[:-1]]

    @property
    def factors(self) -> list[float]:
        """By how much P^-1 g was multiplied in each step, `[steps]`; see `factor`."""
        return [1 / ((number + 1) * h) for number, h in enumerate(self.slopes, start=1)]


def opposite(difference: Tensor) -> Tensor:
    """Return weights `[k, 2]` of two classes, whose difference is given.

    Args:
        difference: Weights of the difference of scores, `[k]`.
    """
    return torch.stack([-difference / 2, difference / 2], 1)


def start(moments: Pooled, floor: float = 1.0) -> Head:
    """Return where the steps begin.

    Args:
        moments: Moments of all groups, of two classes.
        floor: Factor of the least eigenvalue, half of the noise's spectral norm.

    Raises:
        ValueError: For another number of classes.
    """
    if moments.first.shape[1] != 2:
        raise ValueError(f"there are {moments.first.shape[1]} classes, but logistic steps are made for 2")
    head = least_squares(moments, floor)
    return Head(START * head.weights, head.inverse)


def stepped(head: Head, gradient: Tensor, moments: Pooled, number: int) -> Head:
    """Return a classifier after one more step.

    Args:
        head: The classifier so far.
        gradient: Noisy sum of the gradients of the cross entropy at its weights, `[d, 2]`.
        moments: The moments that it began with.
        number: The number of the step, from 1.
    """
    return Head(head.weights - factor(head, moments, number) * head.inverse @ apart(gradient), head.inverse)


def gradient_of_step(before: Head, after: Head, moments: Pooled, number: int) -> Tensor:
    """Return the gradient `[d, 2]` that a step was taken along, without what was the same for both classes.

    Args:
        before: The classifier before the step.
        after: The classifier after it.
        moments: The moments that it began with.
        number: The number of the step, from 1.
    """
    change: Tensor = torch.linalg.solve(before.inverse, before.weights - after.weights)
    return change / factor(before, moments, number)


def apart(gradient: Tensor) -> Tensor:
    """Return what of a gradient `[d, 2]` is opposite for the two classes; what is the same for both is noise."""
    return (gradient - gradient.flip(1)) / 2


def factor(head: Head, moments: Pooled, number: int) -> float:
    """Return by how much P^-1 g is multiplied: for a class, half of what it is for the difference of scores.

    Args:
        head: The classifier before the step.
        moments: The moments that it began with.
        number: The number of the step, from 1.
    """
    return 1 / ((number + 1) * slope(head.weights, moments))


def slope(weights: Tensor, moments: Pooled) -> float:
    """Return h, the mean of p (1 - p) over records whose scores are normal, as the moments tell them; at least 1/8.

    Args:
        weights: Weights of a classifier, `[d, 2]`.
        moments: Moments of all groups.
    """
    mean, deviation = Scores.of(weights[:, 1] - weights[:, 0], moments.second, moments.last)
    probability = torch.sigmoid(mean + deviation * _NODES)
    return max(float(_WEIGHTS @ (probability * (1 - probability)) / _WEIGHTS.sum()), _FLATTEST)
