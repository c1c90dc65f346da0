"""Linear classifiers that follow from second moments without further cost: weights `[d, C]`, a score for each class.

With noise of deviation s on svec(S), the noise on S is a symmetric matrix whose spectral norm is about s sqrt(2 d).
Eigenvalues below half of that are raised to it, so that no direction is trusted in which there is only noise.

Linear classifiers whose mean scores differ less between groups: of all of them, those that lose least.

With u_k the mean features of group k, and U = [u_2 - u_1, ..., u_K - u_1], the classifier

    w_tau = w - (1 - tau) P^-1 U (U' P^-1 U)^-1 U' w

has U' w_tau = tau U' w, and of all that do the least squared loss (Lagrange). tau = 1 leaves w as it is, 0 makes mean
scores equal. That is not yet equal rates: where scores of groups are spread differently, a tau below 0 may be needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedfair.moments.release import Moments, Pooled

Priors = Literal["equal", "counted"]
"""Whether a class is as probable as any other, or as often as it was counted."""

_SINGULAR = 1e-9  # of the largest eigenvalue: directions in which no record differs


class Head(NamedTuple):
    """A classifier, and the matrix in whose norm it is nearest to the best one.

    Attributes:
        weights: Scores are phi' weights, `[d, C]`.
        inverse: P^-1, `[d, d]`.
    """

    weights: Tensor
    inverse: Tensor


def least_squares(moments: Pooled, floor: float = 1.0) -> Head:
    """Return the least squares fit of +1 for a record's class and -1 for every other class.

    Half the difference of two classes' scores is that of the usual fit to -1 and 1; scores as logits make its
    probabilities about (1 + score) / 2.

    Args:
        moments: Moments of all groups.
        floor: Factor of the least eigenvalue, half of the noise's spectral norm.
    """
    inverse = _inverse(moments.second, floor * half_of_noise(moments))
    return Head(inverse @ (2 * moments.first - moments.first.sum(1, keepdim=True)), inverse)


def constant(moments: Pooled) -> Head:
    """Return the classifier that decides for the class which was counted most often, whatever the record."""
    weights = torch.zeros_like(moments.first)
    weights[-1] = torch.log(moments.by_class / moments.by_class.sum()) / moments.last
    return Head(weights, torch.zeros_like(moments.second))


def discriminant(moments: Pooled, priors: Priors = "equal", floor: float = 1.0) -> Head:
    """Return linear discriminant analysis: classes with means m_c and one covariance matrix.

        score_c = (phi - m)' B_c - (d_c' B_c - tr(P^-1) s^2 / n_c^2) / 2 + log prior_c,     B = P^-1 d,  d_c = m_c - m

    m is the mean of all records: without it, directions in which no record differs would swamp the scores. The
    subtracted trace is what the noise of m_c adds to d_c' P^-1 d_c on average. Without it a small class, whose mean is
    the noisiest, is hardly ever predicted.

    Args:
        moments: Moments of all groups.
        priors: Whether all classes count as equally probable.
        floor: Factor of the least eigenvalue, half of the noise's spectral norm.
    """
    counts, total = moments.by_class, float(moments.by_class.sum())
    means, middle = moments.first / counts, moments.first.sum(1, keepdim=True) / total
    within = moments.second - torch.einsum("c,ic,jc->ij", counts, means, means)
    inverse = total * _inverse(within, floor * half_of_noise(moments))
    apart = means - middle
    weights = inverse @ apart
    lengths = ((apart + 2 * middle) * weights).sum(0) - inverse.trace() * (moments.noise_first / counts) ** 2
    offsets = -lengths / 2 + (torch.log(counts / total) if priors == "counted" else 0.0)
    weights = weights.clone()
    weights[-1] += offsets / moments.last
    return Head(weights, inverse)


def half_of_noise(moments: Pooled) -> float:
    """Return half of the spectral norm of the noise on S, about."""
    return moments.noise_second * math.sqrt(len(moments.second) / 2)


def _inverse(matrix: Tensor, least: float) -> Tensor:
    """Return the inverse of a symmetric matrix whose eigenvalues below `least` are raised to it.

    Where there is no noise, directions in which no record differs are left out, as in a pseudoinverse.
    """
    values, vectors = torch.linalg.eigh(matrix)
    raised = least_value(values, least)
    inverted = values.clamp(min=raised).reciprocal()
    if least < raised:
        inverted = torch.where(values > raised, inverted, 0.0)
    inverse: Tensor = (vectors * inverted) @ vectors.T
    return inverse


def least_value(values: Tensor, least: float) -> float:
    """Return what smaller eigenvalues are raised to, which is more than 0 where there is no noise.

    Args:
        values: Eigenvalues, `[d]`.
        least: What the noise wants.
    """
    return max(least, _SINGULAR * float(values.abs().max()), torch.finfo(values.dtype).tiny)


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of S as released, along which P^-1 is f(l) = 1 / max(l, least) of each value l.

    Attributes:
        values: Eigenvalues, rising, `[d]`.
        vectors: Eigenvectors as columns, `[d, d]`.
        least: What smaller eigenvalues are raised to.
    """

    values: Tensor
    vectors: Tensor
    least: float

    @staticmethod
    def of(moments: Pooled, floor: float = 1.0) -> Spectrum:
        """Return that of S with the floor of `least_squares`.

        Args:
            moments: Moments of all groups.
            floor: Factor of the least eigenvalue, half of the noise's spectral norm.
        """
        values, vectors = torch.linalg.eigh(moments.second)
        return Spectrum(values, vectors, least_value(values, floor * half_of_noise(moments)))

    @property
    def inverted(self) -> Tensor:
        """Eigenvalues of P^-1, `[d]`."""
        return self.values.clamp(min=self.least).reciprocal()

    @property
    def changes(self) -> Tensor:
        """By how much an entry of P^-1 along the eigenvectors changes for a change of that of S by 1, `[d, d]`.

        These are the divided differences of f, and its derivative where eigenvalues meet (Daleckii and Krein 1965).
        """
        apart, inverted = self.values[:, None] - self.values, self.inverted
        same = apart.abs() < _SINGULAR * self.values.abs().max()
        slopes = torch.where(self.values > self.least, -inverted**2, 0.0).expand_as(apart)
        return torch.where(same, slopes, (inverted[:, None] - inverted) / torch.where(same, 1.0, apart))


Constraint = Literal["demographic_parity", "equal_opportunity", "both"]
"""Whose mean scores become equal: those of all records, of records of the favourable class, or both."""

GAPS: Mapping[Constraint, Sequence[str]] = {
    "demographic_parity": ("demographic_parity",), "equal_opportunity": ("equal_opportunity",),
    "both": ("demographic_parity", "equal_opportunity")}
"""The gaps that each constraint makes smaller."""


def directions(moments: Moments, constraint: Constraint, favourable: int | None) -> Tensor:
    """Return U, by which mean features of groups differ, `[d, K - 1]`, or `[d, 2 (K - 1)]` for both.

    Args:
        moments: What was released.
        constraint: Whose means count.
        favourable: Number of the favourable class; None if none is named.

    Raises:
        ValueError: If the constraint needs a favourable class, and none is named.
    """
    if constraint != "demographic_parity" and favourable is None:
        raise ValueError(f"options.constraint is {constraint!r}, but no class is favourable: name one by favourable, "
                         'or take "demographic_parity"')
    labels: Mapping[Constraint, Sequence[int | None]] = {
        "demographic_parity": [None], "equal_opportunity": [favourable], "both": [None, favourable]}
    return torch.cat([_differences(moments.group_means(label)) for label in labels[constraint]], 1)


def constrained(head: Head, across: Tensor, tau: float) -> Tensor:
    """Return weights `[d, C]` whose mean scores differ tau times as much between groups.

    Args:
        head: Classifier without a constraint.
        across: U, `[d, m]`.
        tau: Factor that is left of the differences; 1 for all.
    """
    steps = head.inverse @ across
    solved: Tensor = torch.linalg.pinv(across.T @ steps, hermitian=True) @ (across.T @ head.weights)
    return head.weights - (1 - tau) * steps @ solved


def _differences(means: Tensor) -> Tensor:
    """Return by how much the rows after the first differ from it, as columns."""
    return (means[1:] - means[:1]).T
