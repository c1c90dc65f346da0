"""Leave-one-out: how a classifier would decide each training record, had the record not been among them.

A classifier decides the records that it was trained on better than others. Without record i the released sums would
lack its phi phi', its phi in one column and its part of each gradient, and the noise would be the same. So the scores
of record i without it are a function of the record and of what was released: a count of such decisions changes by one
record in one cell, as any count does, and no part has to be held out for figures.

The classifier is the logistic regression of `fedfair.moments.logistic`, with weights w on the difference of scores,

    w_0 = 1.5 P^-1 R,      w_j = w_(j-1) - 2 / ((j + 1) h_j) P^-1 g_j

Along the eigenvectors of S, P^-1 is diagonal, with f(l) = 1 / max(l, floor) of each eigenvalue l. A record with
features a along them changes it by -a_i a_j f[l_i, l_j], divided differences of f (Daleckii and Krein 1965). Steps are
followed one by one: the gradient at the weights without the record lacks the record's own part there, which is exact,
and the part of all others differs by h_j S, for which S is taken without its noise (`fedfair.moments.filled_bins`), and
h_j is of records whose gradients are not clipped. A constraint by tau is kept as it is. `tests/fedfair/moments` holds
it against fits that are made anew.

Approximate leave-one-out, without noise: Rad and Maleki 2020; Beirami et al. 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.moments.filled_bins import Filled
from fedfair.moments.heads import Spectrum
from fedfair.moments.logistic import START, Course
from fedfair.moments.sums import within_one


class LeftOut(NamedTuple):
    """All that tells how records would be decided by classifiers that they did not train.

    Attributes:
        values: Eigenvalues of S, as released, of the k features that classifiers are fitted to, `[k]`.
        vectors: Their eigenvectors, `[k, k]`.
        curvature: S without its noise, about, along them, `[k, k]`.
        least: What smaller eigenvalues are raised to, `[1]`.
        kept: Positions of the k features among all, `[k]`.
        contrast: R, features of the one class less those of the other, along the eigenvectors, `[k]`.
        path: Weights of the difference of scores before the first step and after each, along them, `[steps + 1, k]`.
        slopes: h of each step, `[steps]`.
        unclipped_slopes: By how much of S the gradient of each step changes with the weights, `[steps]`.
        clip: Clip norm of a record's gradient, `[1]`.
        weights: Weights of the difference of scores of each classifier, `[points, d]`.
        lifted: Eigenvectors as weights of all features, `[d, k]`.
        spread: Directions of all features that a constraint takes weights away from, `[d, constraints]`.
        across: Differences between groups that it makes smaller, along the eigenvectors, `[k, constraints]`.
        shares: How much of a change in the regression's weights each classifier has, and of what the constraint takes
            away of it, `[points, 2]`: 1 and 1 - tau, or 0 and 0 for one that decides alike for all.
    """

    values: Tensor
    vectors: Tensor
    curvature: Tensor
    least: Tensor
    kept: Tensor
    contrast: Tensor
    path: Tensor
    slopes: Tensor
    unclipped_slopes: Tensor
    clip: Tensor
    weights: Tensor
    lifted: Tensor
    spread: Tensor
    across: Tensor
    shares: Tensor

    def of_points(self, chosen: Tensor) -> LeftOut:
        """Return the same for some of the classifiers.

        Args:
            chosen: Their positions, or whether each is one of them, `[points]`.
        """
        return self._replace(weights=self.weights[chosen], shares=self.shares[chosen])

    def effects(self, features: Tensor, y: Tensor) -> Tensor:
        """Return what the records themselves add to the difference of their scores, and what of it tau can take away.

        Args:
            features: phi, `[n, d]`.
            y: Labels, `[n]`, 0 or 1.

        Returns:
            Both by record, `[n, 2]`: the same of all classifiers of a front.
        """
        phi = within_one(features.double().cpu())
        changed = self.path[-1] - self._without(phi[:, self.kept] @ self.vectors, y.double().cpu())
        return torch.stack([((phi @ self.lifted) * changed).sum(1),
                            ((phi @ self.spread) * (changed @ self.across)).sum(1)], 1)

    def scores(self, features: Tensor, effects: Tensor) -> Tensor:
        """Return the score of class 1 less that of class 0, by classifiers that were trained without the record.

        Args:
            features: phi, `[n, d]`.
            effects: What `effects` returns of the records.

        Returns:
            Scores, `[n, points]`.
        """
        return features.double().cpu() @ self.weights.T - effects @ (self.shares * torch.tensor([1.0, -1.0])).T

    def _without(self, along: Tensor, y: Tensor) -> Tensor:
        """Return the weights that training would have ended with, `[n, k]`, for records along the eigenvectors."""
        spectrum = Spectrum(self.values, self.vectors, float(self.least))
        inverse, divided = spectrum.inverted, spectrum.changes

        def change(vector: Tensor) -> Tensor:
            """Return by how much P^-1 times a vector, `[k]` or `[n, k]`, differs without the record."""
            return -along * ((along * vector) @ divided)

        own = 2 * along * (2 * y - 1)[:, None]
        rest = self.contrast - own
        weights = START * (inverse * rest + change(rest))
        most = self.clip / along.norm(dim=1).clamp(min=torch.finfo(along.dtype).tiny)
        for step, (slope, unclipped) in enumerate(zip(self.slopes, self.unclipped_slopes, strict=True), start=1):
            before, after = self.path[step - 1], self.path[step]
            stride = 1 / ((step + 1) * slope)
            gradient = (before - after) / (inverse * stride)
            wrong = (torch.sigmoid((along * weights).sum(1)) - y).clamp(-most, most)
            gradient = (gradient - 2 * along * wrong[:, None]
                        + 2 * unclipped * (weights - before) @ self.curvature)
            weights = weights - stride * (inverse * gradient + change(gradient))
        return weights


def left_out(course: Course, second: Tensor, taus: Sequence[float | None], weights: Tensor, across: Tensor | None,
             bins: Filled) -> LeftOut:
    """Return how records would be decided by classifiers of a front that they did not train.

    Args:
        course: The logistic regression that the front follows from.
        second: S without most of its noise, `[k, k]` (`fedfair.moments.filled_bins`).
        taus: What each classifier leaves of the differences between groups; None for one that decides alike for all.
        weights: Their weights, `[points, d, 2]`.
        across: Differences between groups' mean features, `[k, constraints]` (`heads.directions`); None for none.
        bins: Which features are fitted to, and what the weights of the others are.
    """
    spectrum, first = Spectrum.of(course.moments, course.floor), course.moments.first
    vectors = spectrum.vectors
    if across is None:
        across = torch.zeros(len(vectors), 1, dtype=torch.float64)
    steps = (vectors * spectrum.inverted) @ vectors.T @ across
    spread = bins.ending @ steps @ torch.linalg.pinv(across.T @ steps, hermitian=True)  # as in `heads.constrained`
    shares = [(0.0, 0.0) if tau is None else (1.0, 1 - tau) for tau in taus]
    return LeftOut(spectrum.values, vectors, vectors.T @ second @ vectors,
                   torch.tensor([spectrum.least], dtype=torch.float64), bins.kept,
                   2 * (first[:, 1] - first[:, 0]) @ vectors, course.path @ vectors,
                   torch.tensor(course.slopes, dtype=torch.float64),
                   torch.tensor(course.unclipped_slopes, dtype=torch.float64),
                   torch.tensor([course.clip], dtype=torch.float64), weights[:, :, 1] - weights[:, :, 0],
                   bins.ending @ vectors, spread, vectors.T @ across, torch.tensor(shares, dtype=torch.float64))
