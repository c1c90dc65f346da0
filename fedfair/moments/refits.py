"""What noise does to the weights of a logistic regression: how far they are off, and what fits with fresh noise decide.

The weights are M y (`fedfair.moments.posterior`), and the noise on y is of one size, s: fresh noise moves them by M z.
For the direction that a tau below 1 takes off, S and the means of groups are drawn anew, the inverse of S to first
order. Weights are off by that, and since they are drawn to what is likely: (I - M S) b for weights b that are drawn
from the scales that the releases tell, whose variance is added. So intervals hold about as often as they say on average
over bins, less often of a rare bin whose weight is unusually large.

How often a fit with fresh noise decides otherwise follows from how far noise moves scores: the root mean square over
records is that of S, which knows how columns hang together, and people who are made up, each column by itself, say how
uneven it is among them.

All of it is post-processing. Errors of scores from bagging, and as pictures: Nori et al. 2019 (EBM) and 2021 (DP-EBM).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding
from fedfair.mechanisms.randomness import Source, normal, random_bits, uniform
from fedfair.moments.filled_bins import Filled, Records, columns_of
from fedfair.moments.front import LOGISTIC, Point, Refits
from fedfair.moments.heads import Constraint, Head, Spectrum, constrained, directions
from fedfair.moments.logistic import Course
from fedfair.moments.posterior import Posterior
from fedfair.moments.release import Moments
from fedfair.moments.sums import CLASSES, unmixed, unsvec

DRAWS = 64
_TWO = math.sqrt(2)  # two fits have noise of their own, so that their difference has this many deviations of one
_PEOPLE = 500  # made up, by whom it is known how unevenly noise moves scores
_FAR, _PLACES = 8.0, 400  # where no score changes its sign, and places of the sum up to there


def refits(moments: Moments, course: Course, posterior: Posterior, front: Sequence[Point], weights: Tensor,
           constraint: Constraint, favourable: int | None, bins: Filled, encoding: Encoding, draws: Source) -> Refits:
    """Return what noise does to the classifiers of a front that logistic steps made.

    Args:
        moments: What was released, of the k features that are fitted to.
        course: The logistic regression.
        posterior: Its weights, as all releases tell them.
        front: Settings of the classifiers.
        weights: Their weights, of these features, `[points, k, 2]`.
        constraint: What tau makes equal.
        favourable: Number of the favourable class, or None.
        bins: Which features are fitted to, what the weights of the others are, and how many records have each.
        encoding: How columns became features: categories and bins.
        draws: Where random numbers come from.
    """
    drawn = [*_with_fresh_noise(moments, course, posterior, front, constraint, favourable, draws)]
    made = torch.stack(drawn) - weights[..., 1]
    made[:, torch.tensor([point.head != LOGISTIC for point in front])] = 0.0  # the constant classifier
    lifted = made @ bins.ending.T
    held = ((bins.ending @ posterior.held) * bins.ending).sum(1) / 4  # of either class
    off = lifted.square().mean(0) + held.clamp(min=0.0)
    assert bins.records is not None  # of categories and bins
    unknown = torch.cat([~bins.records.told, torch.zeros(1, dtype=torch.bool)])
    by_person = (_people(bins.records, encoding, draws) @ lifted.flatten(0, 1).T).view(-1, DRAWS, len(front)).std(1)
    uneven = by_person.mean(0) / by_person.square().mean(0).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    means = torch.zeros(len(moments.first), len(unknown), dtype=torch.float64)
    means[:, bins.kept] = moments.group_means()
    return Refits(off.sqrt().masked_fill(unknown, math.nan), lifted,
                  _changed(moments, weights, 2 * _TWO * uneven * _moved(moments, posterior.told.exact.second, made)),
                  means, moments.noise_of_group_means())


def _moved(moments: Moments, second: Tensor, made: Tensor) -> Tensor:
    """Return by how much fresh noise moves a score of a class, root mean square over records, `[points]`.

    Args:
        moments: What was released.
        second: S without most of its noise, `[k, k]`.
        made: Weights with fresh noise less those that were released, `[DRAWS, points, k]`.
    """
    records = (second[-1, -1] / moments.last**2).clamp(min=1.0)
    return (((made @ second) * made).sum(2).mean(0) / records).clamp(min=0.0).sqrt()


def _people(records: Records, encoding: Encoding, draws: Source) -> Tensor:
    """Return features of people who are made up, `[people, d]`: each column is drawn by itself, by its counts."""
    assert encoding.bounding is not None
    last, rows = encoding.bounding.last, torch.arange(_PEOPLE)
    made = torch.zeros(_PEOPLE, len(records.numbers) + 1, dtype=torch.float64)
    for places in columns_of(encoding.features).values():
        up_to = torch.where(records.filled, records.numbers, 0.0)[places].cumsum(0)
        wanted = torch.from_numpy(uniform(random_bits(draws, _PEOPLE))) * up_to[-1]
        made[rows, torch.tensor(places)[torch.searchsorted(up_to, wanted).clamp(max=len(places) - 1)]] = 1.0
    made[:, -1] = encoding.bounding.constant
    return made * (last / encoding.bounding.constant)


def _with_fresh_noise(moments: Moments, course: Course, posterior: Posterior, front: Sequence[Point],
                      constraint: Constraint, favourable: int | None, draws: Source) -> Iterator[Tensor]:
    """Yield the weights of the second class of each classifier, `[points, k]`, with fresh noise."""
    spectrum, width = Spectrum.of(course.moments, course.floor), course.path.shape[1]
    vectors, off = spectrum.vectors, posterior.told.noise / 2  # of either class
    inverse, changes = torch.diag(spectrum.inverted), spectrum.changes
    groups, constrains = len(moments.first), any(point.tau != 1 for point in front)
    taus = torch.tensor([point.tau for point in front], dtype=torch.float64)[:, None]
    turned = vectors.T @ posterior.of_classes  # all of it is along the eigenvectors
    for _ in range(DRAWS):
        moved = vectors.T @ posterior.moved @ (off * normal(draws, width, torch.float64))
        head = Head(turned + torch.stack([-moved, moved], 1), inverse)
        alike = head.weights
        if constrains:
            noise = moments.noise * normal(draws, groups * width * CLASSES, torch.float64).view(groups, width, CLASSES)
            first = moments.first + (unmixed(noise) if moments.mixing else noise)
            across = vectors.T @ directions(replace(moments, first=first), constraint, favourable)
            of_second = unsvec(moments.noise * normal(draws, width * (width + 1) // 2, torch.float64)[None])[0]
            alike = constrained(head._replace(inverse=inverse + changes * of_second), across, 0.0)
        yield (taus * head.weights[:, 1] + (1 - taus) * alike[:, 1]) @ vectors.T  # which tau is linear in


def _changed(moments: Moments, weights: Tensor, moved: Tensor) -> Tensor:
    """Return the share of each group's records that a fit with fresh noise decides otherwise, `[points, K]`.

    Scores of a group are taken for normal, with the mean that its sums tell and the variance of all records.

    Args:
        moments: What was released.
        weights: Weights of the classifiers, `[points, k, 2]`.
        moved: By how much a fit with fresh noise moves a score, on average over people, `[points]`.
    """
    pooled, means = moments.pooled(), moments.group_means()
    second, records = pooled.second, pooled.records.clamp(min=1.0)
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
