"""What noise does to the weights of logistic steps: how far they would be off, and what fits with fresh noise decide.

Along an eigenvector of the released S with eigenvalue l, raised to m where it is less than the floor, the steps of
`fedfair.moments.logistic` move the weight of a class by -c_j (g_j + z_j) / m, where the gradient g_j changes by 2 h l
for a change of the weight by 1, and z_j is noise. So the variance that noise adds follows from step to step,

    v_0 = (1.5 / m)^2 Var(noise of V's contrast),     v_j = (1 - 2 h l c_j / m)^2 v_(j-1) + (c_j s / m)^2 / 2

and noises of different eigenvectors are independent. Where noise hides l, it is taken to be half of the mean of all
that are hidden. For the direction that a tau below 1 takes off, S and the means of groups are drawn anew, the inverse
of S to first order.

The floor holds weights of rare bins near 0, which no noise shows. Of n records of a bin the steps leave about the share
r = prod_j (1 - 2 h c_j l / max(l, floor)), l = n c^2, of what a weight was off at first. Weights of bins that are told
well say how large weights are, t^2 on average; r^2 t^2 is added to a bin's variance. So intervals hold about as often
as they say on average over bins, less often of a rare bin whose weight is unusually large.

How often a fit with fresh noise decides otherwise follows from how far noise moves scores: the root mean square over
records is that of S, which knows how columns hang together, and people who are made up, each column by itself, say how
uneven it is among them.

All of it is post-processing. Errors of scores from bagging, and as pictures: Nori et al. 2019 (EBM) and 2021 (DP-EBM).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding
from fedfair.mechanisms.randomness import Source, normal, random_bits, uniform
from fedfair.moments.filled_bins import Filled, Records, columns_of
from fedfair.moments.front import LOGISTIC, Point, Refits
from fedfair.moments.heads import Constraint, Head, constrained, directions, half_of_noise
from fedfair.moments.logistic import START, slope
from fedfair.moments.release import Moments
from fedfair.moments.sums import CLASSES, unmixed, unsvec

DRAWS = 64
_TWO = math.sqrt(2)  # two fits have noise of their own, so that their difference has this many deviations of one
_PEOPLE = 500  # made up, by whom it is known how unevenly noise moves scores
_SAME = 1e-9  # of the largest eigenvalue: eigenvalues that are equal
_FAR, _PLACES = 8.0, 400  # where no score changes its sign, and places of the sum up to there


class Step(NamedTuple):
    """A logistic step: by how much P^-1 g was multiplied, and the deviation of the noise on every number of g."""

    factor: float
    noise: float


class Trained(NamedTuple):
    """The logistic regression that a front is of.

    Attributes:
        head: The classifier after its last step, of the k features that are fitted to.
        steps: The steps.
        floor: Factor of the least eigenvalue.
    """

    head: Head
    steps: tuple[Step, ...]
    floor: float


def refits(moments: Moments, trained: Trained, front: Sequence[Point], weights: Tensor, constraint: Constraint,
           favourable: int | None, bins: Filled, encoding: Encoding, draws: Source) -> Refits:
    """Return what noise does to the classifiers of a front that logistic steps made.

    Args:
        moments: What was released, of the k features that are fitted to.
        trained: The logistic regression.
        front: Settings of the classifiers.
        weights: Their weights, of these features, `[points, k, 2]`.
        constraint: What tau makes equal.
        favourable: Number of the favourable class, or None.
        bins: Which features are fitted to, what the weights of the others are, and how many records have each.
        encoding: How columns became features: categories and bins.
        draws: Where random numbers come from.
    """
    made = torch.stack([*_with_fresh_noise(moments, trained, front, constraint, favourable, draws)]) - weights[..., 1]
    made[:, torch.tensor([point.head != LOGISTIC for point in front])] = 0.0  # the constant classifier
    lifted = made @ bins.ending.T
    off = lifted.square().mean(0) + _held_back(moments, trained, bins, weights, lifted.square().mean(0))
    assert bins.records is not None  # of categories and bins
    unknown = torch.cat([~bins.records.told, torch.zeros(1, dtype=torch.bool)])
    by_person = (_people(bins.records, encoding, draws) @ lifted.flatten(0, 1).T).view(-1, DRAWS, len(front)).std(1)
    uneven = by_person.mean(0) / by_person.square().mean(0).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return Refits(off.sqrt().masked_fill(unknown, math.nan), lifted,
                  _changed(moments, weights, 2 * _TWO * uneven * _moved(moments, made)))


def _moved(moments: Moments, made: Tensor) -> Tensor:
    """Return by how much fresh noise moves a score of a class, root mean square over records, `[points]`.

    Args:
        moments: What was released.
        made: Weights with fresh noise less those that were released, `[DRAWS, points, k]`.
    """
    pooled = moments.pooled()
    values, vectors = torch.linalg.eigh(pooled.second)
    records = (pooled.second[-1, -1] / moments.last**2).clamp(min=1.0)
    along = (made @ vectors).square().mean(0)
    moved: Tensor = (along @ _without_noise(values, half_of_noise(pooled)) / records).sqrt()
    return moved


def _people(records: Records, encoding: Encoding, draws: Source) -> Tensor:
    """Return features of people who are made up, `[people, d]`: each column is drawn by itself, by its counts."""
    assert encoding.bounding is not None
    last, rows = encoding.bounding.last, torch.arange(_PEOPLE)
    made = torch.zeros(_PEOPLE, len(records.numbers) + 1, dtype=torch.float64)
    for places in columns_of(encoding.features).values():
        up_to = torch.where(records.told, records.numbers, 0.0)[places].cumsum(0)
        wanted = torch.from_numpy(uniform(random_bits(draws, _PEOPLE))) * up_to[-1]
        made[rows, torch.tensor(places)[torch.searchsorted(up_to, wanted).clamp(max=len(places) - 1)]] = 1.0
    made[:, -1] = encoding.bounding.constant
    return made * (last / encoding.bounding.constant)


def _with_fresh_noise(moments: Moments, trained: Trained, front: Sequence[Point], constraint: Constraint,
                      favourable: int | None, draws: Source) -> Iterator[Tensor]:
    """Yield the weights of the second class of each classifier, `[points, k]`, with fresh noise."""
    found, (width, _) = _along(moments, trained), trained.head.weights.shape
    groups, constrains = len(moments.first), any(point.tau != 1 for point in front)
    taus = torch.tensor([point.tau for point in front], dtype=torch.float64)[:, None]
    turned = found.vectors.T @ trained.head.weights  # all of it is along the eigenvectors
    for _ in range(DRAWS):
        moved = found.variances.sqrt() * normal(draws, width, torch.float64)
        head = Head(turned + torch.stack([-moved, moved], 1), torch.diag(found.inverted))
        alike = head.weights
        if constrains:
            noise = moments.noise * normal(draws, groups * width * CLASSES, torch.float64).view(groups, width, CLASSES)
            first = moments.first + (unmixed(noise) if moments.mixing else noise)
            across = found.vectors.T @ directions(replace(moments, first=first), constraint, favourable)
            of_second = unsvec(moments.noise * normal(draws, width * (width + 1) // 2, torch.float64)[None])[0]
            alike = constrained(head._replace(inverse=head.inverse + found.changes * of_second), across, 0.0)
        yield (taus * head.weights[:, 1] + (1 - taus) * alike[:, 1]) @ found.vectors.T  # which tau is linear in


class _Along(NamedTuple):
    """What noise does along the eigenvectors of S.

    Attributes:
        vectors: Eigenvectors as columns, `[k, k]`.
        inverted: Eigenvalues of the inverse, `[k]`.
        variances: Variance of the weight of a class along each, `[k]`.
        changes: By how much an entry of the inverse changes for a change of that of S by 1, `[k, k]` (Daleckii and
            Krein 1965).
    """

    vectors: Tensor
    inverted: Tensor
    variances: Tensor
    changes: Tensor


def _along(moments: Moments, trained: Trained) -> _Along:
    """Return what noise does along the eigenvectors of S."""
    pooled, least = moments.pooled(), _least(moments, trained)
    values, vectors = torch.linalg.eigh(pooled.second)
    inverted, h = values.clamp(min=least).reciprocal(), slope(trained.head.weights, pooled)
    variances = (START * inverted * moments.noise_of_contrast) ** 2
    curved = _without_noise(values, half_of_noise(pooled))
    for step in trained.steps:
        moved = step.factor * inverted
        variances = (1 - 2 * h * moved * curved) ** 2 * variances + (moved * step.noise) ** 2 / 2
    apart = values[:, None] - values
    same = apart.abs() < _SAME * values.abs().max()
    slopes = torch.where(values > least, -inverted**2, 0.0).expand_as(apart)
    changes = torch.where(same, slopes, (inverted[:, None] - inverted) / torch.where(same, 1.0, apart))
    return _Along(vectors, inverted, variances, changes)


def _without_noise(values: Tensor, edge: float) -> Tensor:
    """Return eigenvalues of S, `[k]`, of which those that noise hides are at least half of what they are on average:
    not all of it, so that deviations are rather too large.

    Noise spreads eigenvalues that are small up to twice the `edge`, and does not change their sum; a larger one, l,
    becomes l + edge^2 / l (Capitaine, Donati-Martin and Feral 2009).
    """
    told = values > 2 * edge
    own = (values + (values.square() - 4 * edge**2).clamp(min=0.0).sqrt()) / 2
    hidden = (values.sum() - own[told].sum()) / max(int((~told).sum()), 1)
    return values.clamp(min=min(max(float(hidden), 0.0), edge) / 2)


def _least(moments: Moments, trained: Trained) -> float:
    """Return the floor of eigenvalues."""
    return max(trained.floor * half_of_noise(moments.pooled()), torch.finfo(torch.float64).tiny)


def _held_back(moments: Moments, trained: Trained, bins: Filled, weights: Tensor, spread: Tensor) -> Tensor:
    """Return what is added to the variance of each weight since rare bins are held near 0, `[points, d]`."""
    assert bins.records is not None
    numbers, h = bins.records.numbers.clamp(min=0.0), slope(trained.head.weights, moments.pooled())
    size, left = numbers * moments.last**2, torch.ones_like(numbers)
    share = size / size.clamp(min=_least(moments, trained))
    for step in trained.steps:
        left = left * (1 - 2 * h * step.factor * share)
    own = (bins.ending @ weights)[:, :-1, 1].square() - spread[:, :-1]
    by_records = numbers * (1 - left) * bins.records.told
    usual = ((own * by_records).sum(1) / by_records.sum().clamp(min=1.0)).clamp(min=0.0)
    return torch.cat([usual[:, None] * left.square(), torch.zeros_like(spread[:, :1])], 1)


def _changed(moments: Moments, weights: Tensor, moved: Tensor) -> Tensor:
    """Return the share of each group's records that a fit with fresh noise decides otherwise, `[points, K]`.

    Scores of a group are taken for normal, with the mean that its sums tell and the variance of all records.

    Args:
        moments: What was released.
        weights: Weights of the classifiers, `[points, k, 2]`.
        moved: By how much a fit with fresh noise moves a score, on average over people, `[points]`.
    """
    second, means = moments.pooled().second, moments.group_means()
    records = (second[-1, -1] / moments.last**2).clamp(min=1.0)
    scores = weights[:, :, 1] - weights[:, :, 0]
    mean = second[-1] @ scores.T / moments.last / records
    spread = (((scores @ second) * scores).sum(1) / records - mean**2).clamp(min=0.0).sqrt()
    return sign_changes(scores @ means.T, spread[:, None], moved[:, None])


def sign_changes(mean: Tensor, spread: Tensor, moved: Tensor) -> Tensor:
    """Return how often the sum of two normal numbers has another sign than the first.

    Args:
        mean: Mean of the first.
        spread: Its deviation.
        moved: Deviation of the second, whose mean is 0.

    Examples:
        >>> sign_changes(torch.zeros(1), torch.ones(1), torch.ones(1))  # an eighth of the circle, on either side
        tensor([0.2500])
    """
    places = torch.linspace(0, _FAR, _PLACES, dtype=mean.dtype)
    other, tiny = torch.special.ndtr(-places), torch.finfo(mean.dtype).tiny
    scores = moved[..., None] * places
    z = [(sign * scores - mean[..., None]) / spread.clamp(min=tiny)[..., None] for sign in (1, -1)]
    density = sum(torch.exp(-each.square() / 2) for each in z) / math.sqrt(2 * math.pi)
    return torch.trapezoid(density * other, places) * moved / spread.clamp(min=tiny)
