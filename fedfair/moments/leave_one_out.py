"""Leave-one-out: how a classifier would decide each training record, had the record not been among them.

A classifier decides the records that it was trained on better than others. Without record i the released sums would
lack its part, and the noise would be the same. So the score of record i without it is a function of the record and of
what was released: a count of such decisions changes by one record in one cell, as any count does, and no part has to
be held out for figures.

The classifier is the logistic regression of `fedfair.moments.posterior`, whose weights follow y - S b. Without record i
a gradient at w lacks phi_i (p(z) - y_i), clipped, for the record's score z at w, and S lacks phi_i phi_i'. So y - S b
lacks phi_i times the mean over gradients of a z + c + y_i - p(z), less s, the score without the record. That depends on
s, which is found by halving an interval; z moves as s does. Where noise was taken out of S, S holds only a share of
(phi_i - m)(phi_i - m)' between columns, for their means m, and lacks no more. M, by which b changes with y, counts that
scales follow y; b also turns a little with S where y - S b is not 0. A constraint by tau is kept as it is.
`tests/fedfair/moments` holds it against fits that are made anew.

Approximate leave-one-out, without noise: Rad and Maleki 2020; Beirami et al. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.moments.filled_bins import Filled
from fedfair.moments.heads import Spectrum
from fedfair.moments.logistic import Course
from fedfair.moments.posterior import Posterior
from fedfair.moments.sums import within_one

_HALVINGS = 50


class Regression(NamedTuple):
    """The regression's weights, and how they would change without a record.

    Attributes:
        kept: Positions of the k features that classifiers are fitted to, among all d, `[k]`.
        trained: Weights of the difference of scores, of all features, before any constraint, `[d]`.
        pull: By how much weights of all features change with y, `[d, k]` (`Posterior.moved`).
        turn: By how much weights of all features change with S, `[d, k]` (`Posterior.turn`).
        rest: What that is to be multiplied by, `[k]`.
        away: By how much the gradients' weights, each times its a and share, are other than b, `[k]`.
        means: Means of the features that classifiers are fitted to, `[k]`.
        lost: Which share of what differs from independence S lacks, `[k, k]`.
    """

    kept: Tensor
    trained: Tensor
    pull: Tensor
    turn: Tensor
    rest: Tensor
    away: Tensor
    means: Tensor
    lost: Tensor


class Gradients(NamedTuple):
    """The gradients that the regression's weights follow.

    Attributes:
        at: Weights that they were taken at, of all features, `[d, gradients]`.
        lines: For each gradient g at w by how much y holds a S w + c t - g, and a and c, `[gradients, 3]`.
        clip: Clip norm of a record's gradient, `[1]`.
    """

    at: Tensor
    lines: Tensor
    clip: Tensor

    def by_label(self, score: Tensor, phi: Tensor, y: Tensor, moved: Tensor, lengths: Tensor) -> Tensor:
        """Return what records add to y along phi, less what they add to S b, at the scores without them, `[n]`.

        Args:
            score: Scores with the records, but for what they add to y, `[n]`.
            phi: Features, `[n, d]`.
            y: Labels, `[n]`, 0 or 1.
            moved: By how much a score changes with what its record adds, `[n]`.
            lengths: Norms of the features that classifiers are fitted to, `[n]`.
        """
        shares, steep, offset = self.lines.T
        steps = torch.arange(len(shares)) > 0  # the first gradient is at 0 without the record too
        at, most = phi @ self.at, self.clip / lengths.clamp(min=torch.finfo(lengths.dtype).tiny)

        def told(without: Tensor) -> Tensor:
            """Return it at some scores."""
            scores = at + steps * (without - score)[:, None]
            wrong = (y[:, None] - torch.sigmoid(scores)).clamp(-most[:, None], most[:, None])
            return torch.sub((steep * scores + offset + wrong) @ shares, without)

        reach = 2 * moved.abs() * (told(score).abs() + 2 * shares.sum())
        low, high = score - reach, score + reach
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = middle + moved * told(middle) > score
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return told((low + high) / 2)


class Classifiers(NamedTuple):
    """The classifiers of a front, and what a constraint takes away of a change in the regression's weights.

    Attributes:
        weights: Weights of the difference of scores of each classifier, `[points, d]`.
        spread: Directions of all features that a constraint takes weights away from, `[d, constraints]`.
        across: Differences between groups that it makes smaller, times what weights change by, `[k, constraints]`.
        turned: The same, times the turn.
        left: How much of a change in the regression's weights each classifier has, and of what the constraint
            takes away of it, `[points, 2]`: 1 and 1 - tau, or 0 and 0 for one that decides alike for all.
    """

    weights: Tensor
    spread: Tensor
    across: Tensor
    turned: Tensor
    left: Tensor


class LeftOut(NamedTuple):
    """All that tells how records would be decided by classifiers that they did not train."""

    regression: Regression
    gradients: Gradients
    classifiers: Classifiers

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> LeftOut:
        """Return what became `tensors`; raise `ValueError` if there are others, or fewer."""
        kinds = (Regression, Gradients, Classifiers)
        needed = {name for kind in kinds for name in kind._fields}
        if {*tensors} != needed:
            raise ValueError(f"records that are left out are decided by the tensors {', '.join(sorted(needed))}, and "
                             f"there are {', '.join(sorted(tensors)) or 'none'}: server and node need one version")
        regression, gradients, classifiers = ({name: tensors[name] for name in kind._fields} for kind in kinds)
        return cls(Regression(**regression), Gradients(**gradients), Classifiers(**classifiers))

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, as a message holds them."""
        return {**self.regression._asdict(), **self.gradients._asdict(), **self.classifiers._asdict()}

    def of_points(self, chosen: Tensor) -> LeftOut:
        """Return the same for some of the classifiers.

        Args:
            chosen: Their positions, or whether each is one of them, `[points]`.
        """
        weights, left = self.classifiers.weights[chosen], self.classifiers.left[chosen]
        return self._replace(classifiers=self.classifiers._replace(weights=weights, left=left))

    def effects(self, features: Tensor, y: Tensor) -> Tensor:
        """Return what the records themselves add to the difference of their scores, and what of it tau can take away.

        Args:
            features: phi, `[n, d]`.
            y: Labels, `[n]`, 0 or 1.

        Returns:
            Both by record, `[n, 2]`: the same of all classifiers of a front.
        """
        fit, constraint, phi = self.regression, self.classifiers, within_one(features.double().cpu())
        own, pulled, turned = phi[:, fit.kept], phi @ fit.pull, phi @ fit.turn
        apart = own - fit.means
        hidden, told = (apart * ((apart * weights) @ fit.lost) for weights in (fit.away, fit.rest))
        turns = own * (own @ fit.rest)[:, None] - told
        beside = (turned * turns - pulled * hidden).sum(1)
        by_label = self.gradients.by_label(phi @ fit.trained - beside, phi, y.double().cpu(), (pulled * own).sum(1),
                                           own.norm(dim=1))
        pulls = own * by_label[:, None] - hidden
        taken = pulls @ constraint.across + turns @ constraint.turned
        return torch.stack([(pulled * pulls + turned * turns).sum(1), ((phi @ constraint.spread) * taken).sum(1)], 1)

    def scores(self, features: Tensor, effects: Tensor) -> Tensor:
        """Return the score of class 1 less that of class 0, by classifiers that were trained without the record.

        Args:
            features: phi, `[n, d]`.
            effects: What `effects` returns of the records.

        Returns:
            Scores, `[n, points]`.
        """
        return features.double().cpu() @ self.classifiers.weights.T - effects @ (
            self.classifiers.left * torch.tensor([1.0, -1.0])).T


def left_out(course: Course, posterior: Posterior, taus: Sequence[float | None], weights: Tensor,
             across: Tensor | None, bins: Filled) -> LeftOut:
    """Return how records would be decided by classifiers of a front that they did not train.

    Args:
        course: The logistic regression that the front follows from.
        posterior: Its weights, as all releases tell them.
        taus: What each classifier leaves of the differences between groups; None for one that decides alike for all.
        weights: Their weights, `[points, d, 2]`.
        across: Differences between groups' mean features, `[k, constraints]` (`heads.directions`); None for none.
        bins: Which features are fitted to, and what the weights of the others are.
    """
    if across is None:
        across = torch.zeros(len(bins.kept), 1, dtype=torch.float64)
    spectrum = Spectrum.of(course.moments, course.floor)
    steps = (spectrum.vectors * spectrum.inverted) @ spectrum.vectors.T @ across
    spread = bins.ending @ steps @ torch.linalg.pinv(across.T @ steps, hermitian=True)  # as in `heads.constrained`
    left = [(0.0, 0.0) if tau is None else (1.0, 1 - tau) for tau in taus]
    told, exact = posterior.told, posterior.told.exact
    away = told.lines[:, :2].prod(1) @ told.at - posterior.mean
    regression = Regression(bins.kept, bins.ending @ posterior.mean, bins.ending @ posterior.moved,
                            bins.ending @ posterior.turn, posterior.rest, away, exact.means, exact.lost)
    gradients = Gradients(bins.lift @ told.at.T, told.lines, torch.tensor([course.clip], dtype=torch.float64))
    classifiers = Classifiers(weights[:, :, 1] - weights[:, :, 0], spread, posterior.moved.T @ across,
                              posterior.turn.T @ across, torch.tensor(left, dtype=torch.float64))
    return LeftOut(regression, gradients, classifiers)
