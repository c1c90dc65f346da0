"""The weights that all releases of a logistic regression tell together, where weights of a column are thought alike.

The steps of `fedfair.moments.logistic` end with the noise of their last gradients. But every release tells of the same
weights b, and together they tell y = S b + noise of one size (`fedfair.moments.told`), beside what drawing the records
adds, of covariance S / h.

Weights of a number's bins follow a line and bend away from it step by step, as Brownian motion along the normal scores
of bins; those of categories are independent. How far, by column, is told by the releases too: scales under which they
are likeliest, by expectation and maximisation, each column's a little drawn to those of its kind ("empirical Bayes":
Morris 1983). The mean of b given y is what is taken, with the constant that scores have which are not normal
(`constant_missed`). A column of which noise tells nothing ends near a constant, one that acts in a line near a
line, one with a jump keeps it. It is all computed from what was released, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding
from fedfair.moments.filled_bins import Filled, columns_of, denoised, numbers_of_columns
from fedfair.moments.logistic import Course, Scores, opposite
from fedfair.moments.release import Moments
from fedfair.moments.told import Axes, Told, told_by

_LEAST = 3  # bins of a number that can bend
_DRAWN = 4.0  # weights of its kind's mean scale that a column counts beside its own
_FREE = 1e6  # the constant's variance, in those of the others
_TURNS, _SETTLED = 40, 0.02  # of scales, and the largest change that ends them
_EXACT = 1e-6  # least deviation and eigenvalue that are counted with
_WITHIN = 0.05  # least share of the variance of scores that is within the bins of a column
_FARTHEST, _HALVINGS = 6.0, 30  # of a change of the constant score


class Part(NamedTuple):
    """A part of the weights, of one scale.

    Attributes:
        kind: What its scale is drawn to that of.
        root: Weights are this times independent numbers of variance scale^2, `[k, r]`.
    """

    kind: str
    root: Tensor


class Posterior(NamedTuple):
    """The weights that are taken, and how they follow from what was told.

    Attributes:
        told: What the releases tell.
        pull: Weights are this times y, `[k, k]`.
        moved: By how much weights change with y, as scales follow it too, `[k, k]`.
        turn: Weights change by this times d S times `rest` for a small change d S of S, beside what y - S b changes,
            `[k, k]`.
        rest: What the weights leave of y, over the variance of its noise, `[k]`.
        held: Covariance of what weights are off those without noise since they are drawn more to what is likely,
            `[k, k]`.
        scales: Variances of the parts that weights are made of, `[parts]`.
        constant: What is added to the constant one's weight, since scores are not normal (`constant_missed`).
    """

    told: Told
    pull: Tensor
    moved: Tensor
    turn: Tensor
    rest: Tensor
    held: Tensor
    scales: Tensor
    constant: float = 0.0

    @property
    def mean(self) -> Tensor:
        """The mean of b given y, `[k]`."""
        return self.pull @ self.told.sums

    @property
    def weights(self) -> Tensor:
        """Weights of the difference of scores that are taken, `[k]`."""
        weights = self.mean
        weights[-1] += self.constant
        return weights

    @property
    def of_classes(self) -> Tensor:
        """The same for either class, `[k, 2]`, which are opposite."""
        return opposite(self.weights)


def posterior(course: Course, moments: Moments, bins: Filled, encoding: Encoding) -> Posterior:
    """Return the weights that all releases tell together.

    Args:
        course: The logistic regression, as it was trained.
        moments: What was released before it, of the k features that are fitted to.
        bins: Which features these are, and about how many records have each.
        encoding: How columns became all features: categories and bins.
    """
    noisy = denoised(course.moments, bins, encoding)
    axes = Axes.of(noisy.second)
    exact = noisy._replace(second=(axes.vectors * axes.values) @ axes.vectors.T)
    prior, weights = parts(bins, encoding), course.path[-1]
    first = torch.full((len(prior),), max(float(weights.square().mean()), _EXACT), dtype=torch.float64)
    first[-1] *= _FREE
    rough = drawn_together(told_by(course, moments, exact, axes, weights), prior, first)
    found = drawn_together(told_by(course, moments, exact, axes, rough.mean), prior, rough.scales)
    missed = constant_missed(found.mean, exact.second, moments.last, numbers_of_columns(bins, encoding))
    return found._replace(constant=missed / moments.last)


def constant_missed(weights: Tensor, second: Tensor, last: float, column: Tensor) -> float:
    """Return what has to be added to all scores, since they are not normal.

    Where nearly all records of the rarer class are in one bin, scores have a long tail, and with it another mean
    probability than normal ones. S tells it too. With one feature a column for each record, the records of bin j have
    the mean score (S w)_j / sum_i phi_ij, and vary about it by what scores vary beside that column. So each column
    gives a mixture of normal distributions. It counts by the variance of scores between its bins: where they differ
    little, all that is not normal is hidden in what is taken to be. With what is returned, the mean probability of
    these mixtures is that of normal scores before, which is what the releases tell.

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


def parts(bins: Filled, encoding: Encoding) -> list[Part]:
    """Return what weights of k features are made of; the last is the constant one.

    Args:
        bins: Which features are fitted to, and about how many records have each.
        encoding: How columns became all features: categories and bins.
    """
    assert bins.records is not None  # of categories and bins
    at = {place: number for number, place in enumerate(bins.kept.tolist())}
    width, made = len(at), []
    for places in columns_of(encoding.features).values():
        own = [place for place in places if place in at]
        ordered = [place for place in own if encoding.features[place].bin is not None]
        if len(ordered) >= _LEAST:
            shares = bins.records.numbers[ordered].clamp(min=1.0)
            line, bent = _of_numbers(shares / shares.sum())
            rows = [at[place] for place in ordered]
            made += [Part("line", _placed(line, rows, width)), Part("bend", _placed(bent, rows, width))]
            own = [place for place in own if place not in ordered]
        if own:
            made.append(Part("category", _placed(torch.eye(len(own), dtype=torch.float64),
                                                 [at[place] for place in own], width)))
    return [*made, Part("constant", _placed(torch.ones(1, 1, dtype=torch.float64), [width - 1], width))]


def _of_numbers(shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return a line and Brownian motion over bins with shares of records `[b]`, each with mean 0 and variance 1.

    Bins lie at their normal scores, since what few records have at either end is far from the others (van der Waerden
    1952).

    Returns:
        `[b, 1]` and `[b, b]`, whose squares' mean over records is 1.
    """
    place = torch.special.ndtri((shares.cumsum(0) - shares / 2).clamp(_EXACT, 1 - _EXACT))
    place = place - place[0]
    line = place - shares @ place
    centre = torch.eye(len(shares), dtype=torch.float64) - shares
    covariance = centre @ torch.minimum(place[:, None], place) @ centre.T
    values, vectors = torch.linalg.eigh(covariance / (shares @ covariance.diagonal()))
    return (line / (shares @ line.square()).sqrt())[:, None], vectors * values.clamp(min=0.0).sqrt()


def _placed(root: Tensor, rows: Sequence[int], width: int) -> Tensor:
    """Return a root of some weights as one of all, `[width, r]`."""
    made = torch.zeros(width, root.shape[1], dtype=torch.float64)
    made[list(rows)] = root
    return made


def drawn_together(told: Told, prior: Sequence[Part], first: Tensor) -> Posterior:
    """Return the mean of weights given what is told, with the scales under which it is likeliest.

    Args:
        told: What the releases tell.
        prior: What weights are made of; the last part is the constant.
        first: The variances that scales begin with, `[parts]`; that of the constant stays.
    """
    roots, owner, by_kind = torch.cat([part.root for part in prior], 1), _owners(prior), _by_kind(prior)
    values, vectors = told.axes
    along, sums = vectors.T @ roots, vectors.T @ told.sums
    variance = (values / told.slope + told.noise**2).clamp(min=_EXACT**2)  # of y
    exact = torch.where(values > _EXACT, told.slope, 0.0).double()
    trust = torch.where(values > _EXACT, values / variance, 0.0)
    precision, drawn = (along.T * (trust * values)) @ along, along.T @ (trust * sums)
    scales = first
    for _ in range(_TURNS):
        spread = _inverse(precision, scales[owner.argmax(1)].sqrt())
        before, scales = scales, by_kind @ (owner.T @ ((spread @ drawn) ** 2 + spread.diagonal()))
        scales = torch.cat([scales.clamp(min=torch.finfo(torch.float64).tiny)[:-1], first[-1:]])
        if float((scales / before - 1).abs().max()) < _SETTLED:
            break
    own = scales[owner.argmax(1)].sqrt()
    spread = _inverse(precision, own)
    pulled, free = roots @ spread @ along.T, roots @ _inverse((along.T * (exact * values)) @ along, own) @ along.T
    changed = (pulled * trust - free * exact) * (values / told.slope).sqrt()
    missed = ((roots - (pulled * trust * values) @ along) * own)[:, :-1]  # of the constant nothing is thought likely
    answer = spread @ along.T * trust
    moved = roots @ (answer + _by_scales(spread, answer, spread @ drawn, scales, owner, by_kind))
    rest = (sums - values * (vectors.T @ pulled @ (trust * sums))) / variance
    return Posterior(told, (pulled * trust) @ vectors.T, moved @ vectors.T,
                     (pulled * told.noise**2 / variance) @ vectors.T, vectors @ rest,
                     changed @ changed.T + missed @ missed.T, scales)


def _by_scales(spread: Tensor, answer: Tensor, mean: Tensor, scales: Tensor, owner: Tensor, by_kind: Tensor) -> Tensor:
    """Return by how much the independent numbers `[r]` change with y since scales follow it, `[r, k]`."""
    with_scales = spread @ (owner * mean[:, None]) / scales**2
    turned = owner.T @ (2 * mean[:, None] * with_scales + spread.square() @ owner / scales**2)
    whole = torch.eye(len(scales), dtype=torch.float64) - by_kind @ turned
    scaled: Tensor = torch.linalg.solve(whole, by_kind @ (owner.T @ (2 * mean[:, None] * answer)))
    return with_scales @ scaled


def _inverse(precision: Tensor, deviations: Tensor) -> Tensor:
    """Return the inverse of a precision `[r, r]` to which that of independent numbers of some deviations is added."""
    whole = torch.eye(len(deviations), dtype=torch.float64) + deviations[:, None] * precision * deviations
    return deviations[:, None] * torch.cholesky_inverse(torch.linalg.cholesky(whole)) * deviations


def _owners(prior: Sequence[Part]) -> Tensor:
    """Return whether each column of the roots belongs to each part, `[r, parts]`, as 1 or 0."""
    numbers = torch.repeat_interleave(torch.tensor([part.root.shape[1] for part in prior]))
    return torch.nn.functional.one_hot(numbers).double()


def _by_kind(prior: Sequence[Part]) -> Tensor:
    """Return what variances of the parts are of sums of squares, `[parts, parts]`: a little drawn to their kind's."""
    kinds = [part.kind for part in prior]
    sizes = torch.tensor([part.root.shape[1] for part in prior], dtype=torch.float64)
    alike = torch.tensor([[float(kind == other) for other in kinds] for kind in kinds], dtype=torch.float64)
    made = torch.eye(len(prior), dtype=torch.float64) + _DRAWN * alike / (alike @ sizes)
    return made / (sizes + _DRAWN)[:, None]
