"""Leave-one-out: what is computed at once, held against fits that are made anew without each record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Bounding, Encoding, Feature
from fedfair.moments import logistic
from fedfair.moments.filled_bins import Filled, denoised, filled
from fedfair.moments.front import LOGISTIC, Point, front
from fedfair.moments.heads import Head, directions
from fedfair.moments.leave_one_out import LeftOut, left_out
from fedfair.moments.logistic import Course
from fedfair.moments.posterior import Posterior, posterior
from fedfair.moments.release import Moments
from fedfair.moments.sums import moment_sums, svec, unsvec
from tests.for_each import for_each

COLUMNS, BINS, STEPS, TAUS = 6, 4, 3, (1.0, 0.4)
WIDTH = COLUMNS * BINS + 1
ENCODING = Encoding(tuple(Feature(f"c{column}", f"{code}") for column in range(COLUMNS) for code in range(BINS)),
                    bounding=Bounding(math.sqrt(COLUMNS), 1.0))


class Records(NamedTuple):
    """Features, labels and groups."""

    phi: Tensor
    y: Tensor
    group: Tensor

    def without(self, place: int) -> Records:
        """Return all but one record."""
        rows = torch.arange(len(self.y)) != place
        return Records(self.phi[rows], self.y[rows], self.group[rows])


class Fit(NamedTuple):
    """What is released, the weights that it tells, and the classifiers of each tau."""

    moments: Moments
    course: Course
    posterior: Posterior
    weights: Tensor


def made(number: int, seed: int) -> Records:
    """Make records of binned columns."""
    draws = torch.Generator().manual_seed(seed)
    codes = torch.randint(BINS, (number, COLUMNS), generator=draws)
    phi = torch.nn.functional.one_hot(codes, BINS).flatten(1).double()
    group = torch.randint(2, (number,), generator=draws)
    score = phi @ torch.randn(COLUMNS * BINS, generator=draws, dtype=torch.float64) * 0.7 + 0.5 * group
    y = (torch.rand(number, generator=draws, dtype=torch.float64) < torch.sigmoid(score)).long()
    return Records(torch.cat([phi, torch.ones(number, 1)], 1) / (COLUMNS + 1) ** 0.5, y, group)


def fitted(records: Records, noise: float, seed: int, clip: float = 1.0) -> Fit:
    """Fit anew, always with the same noise."""
    draws = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        """Draw noise."""
        return noise * torch.randn(shape, generator=draws, dtype=torch.float64)

    sums = moment_sums(*records, groups=2, classes=2, by_group=False)
    second = sums["second"] + normal(*svec(torch.zeros(1, WIDTH, WIDTH)).shape)
    moments = Moments(unsvec(second), sums["first"] + normal(2, WIDTH, 2), noise, float(records.phi[0, -1]))
    pooled = moments.pooled()
    heads = [logistic.start(pooled)]
    for number in range(1, STEPS + 1):
        wrong = torch.softmax(records.phi @ heads[-1].weights, 1) - torch.nn.functional.one_hot(records.y, 2)
        gradient = records.phi.T @ wrong.clamp(-clip, clip) + clip * normal(WIDTH, 2)  # of features of norm 1
        heads.append(logistic.stepped(heads[-1], gradient, pooled, number))
    course = Course(pooled, 1.0, torch.stack([apart(head) for head in heads]), (clip * noise,) * STEPS, clip)
    told = posterior(course, moments, every(moments), ENCODING)
    points = [Point(LOGISTIC, tau=tau) for tau in TAUS]
    weights = front(moments, points, "demographic_parity", 1, Head(told.of_classes, heads[-1].inverse)).weights
    return Fit(moments, course, told, weights)


def apart(head: Head) -> Tensor:
    """Return the weights of the difference of scores."""
    return head.weights[:, 1] - head.weights[:, 0]


def at_once(fit: Fit) -> LeftOut:
    """Return what tells of all records at once."""
    across = directions(fit.moments, "demographic_parity", 1)
    return left_out(fit.course, fit.posterior, TAUS, fit.weights, across, every(fit.moments))


def scores(left: LeftOut, records: Records) -> Tensor:
    """Return the scores of records by classifiers that they did not train."""
    return left.scores(records.phi, left.effects(records.phi, records.y))


def every(moments: Moments) -> Filled:
    """Return that classifiers are fitted to all features, whatever is told of them."""
    whole = torch.eye(WIDTH, dtype=torch.float64)
    return filled(moments, ENCODING)._replace(kept=torch.arange(WIDTH), lift=whole, ending=whole)


def without_noise(moments: Moments) -> Tensor:
    """Return S without most of its noise."""
    return denoised(moments.pooled(), every(moments), ENCODING).second


@pytest.mark.parametrize(("noise", "clip"), [(0.0, 1.0), (2.0, 1.0), (6.0, 1.0), (0.0, 0.5), (2.0, 0.5), (6.0, 0.5),
                                             (0.0, 0.3), (2.0, 0.3)])
def test_scores_are_nearly_those_of_fits_without_the_record(noise: float, clip: float) -> None:
    """Of the mean difference that leaving a record out makes, at least nine tenths are found."""
    records = made(250, 0)
    fit = fitted(records, noise, 1, clip)
    found = scores(at_once(fit), records)
    with_all = records.phi @ (fit.weights[:, :, 1] - fit.weights[:, :, 0]).T
    sign, left, missed = (2 * records.y - 1)[:, None], [], []
    for place in range(0, 250, 2):
        weights = fitted(records.without(place), noise, 1, clip).weights
        exact = (records.phi[place] @ (weights[:, :, 1] - weights[:, :, 0]).T)
        left.append((with_all[place] - exact) * sign[place])
        missed.append((found[place] - exact) * sign[place])
    changed, error = torch.stack(left).mean(0), torch.stack(missed).mean(0)
    assert (changed > 0).all()
    assert (error.abs() < 0.1 * changed).all(), (changed, error)


def test_accuracy_is_that_on_new_records() -> None:
    """With all records it is several hundredths too high; without each, right on average over 20 fits."""
    resubstituted, found = [], []
    for seed in range(20):
        records, noise = made(250, seed), 3.0
        fit = fitted(records, noise, seed)
        weights = fit.weights[0, :, 1] - fit.weights[0, :, 0]
        new = made_alike(records, seed)
        fresh = right(new.phi @ weights, new.y)
        resubstituted.append(right(records.phi @ weights, records.y) - fresh)
        found.append(right(scores(at_once(fit), records)[:, 0], records.y) - fresh)
    optimism, error = torch.tensor(resubstituted), torch.tensor(found)
    assert optimism.mean() > 0.03
    assert error.mean().abs() < 2.6 * error.std() / 20**0.5 + 0.005


def made_alike(records: Records, seed: int) -> Records:
    """Make many more records of the same kind: the first ones are those of the seed."""
    many = made(250, seed)
    assert torch.equal(many.phi, records.phi)
    draws = torch.Generator().manual_seed(seed)
    torch.randint(BINS, (250, COLUMNS), generator=draws)
    torch.randint(2, (250,), generator=draws)
    weights = torch.randn(COLUMNS * BINS, generator=draws, dtype=torch.float64) * 0.7
    codes, group = torch.randint(BINS, (20_000, COLUMNS), generator=draws), torch.randint(2, (20_000,), generator=draws)
    phi = torch.nn.functional.one_hot(codes, BINS).flatten(1).double()
    y = (torch.rand(20_000, generator=draws, dtype=torch.float64) < torch.sigmoid(phi @ weights + 0.5 * group)).long()
    return Records(torch.cat([phi, torch.ones(20_000, 1)], 1) / (COLUMNS + 1) ** 0.5, y, group)


def right(scores: Tensor, y: Tensor) -> float:
    """Return how often scores decide rightly."""
    return float(((scores > 0).long() == y).double().mean())


def test_a_record_decides_its_own_score_alone() -> None:
    """So it moves counts in one cell: what others are, beyond what was released, changes nothing."""
    records = made(60, 2)
    left = at_once(fitted(records, 2.0, 2))
    together = scores(left, records)
    for place in (0, 17, 59):
        alone = scores(left, Records(*(values[place:place + 1] for values in records)))
        assert torch.allclose(alone[0], together[place], rtol=0, atol=1e-12)


@for_each("changed", [lambda tensors: tensors.pop("turn"), lambda tensors: tensors.update(more=tensors["turn"])])
def test_a_message_of_other_tensors_is_refused(changed: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = at_once(fitted(made(60, 2), 2.0, 2)).tensors()
    assert LeftOut.of_tensors(tensors).tensors() == tensors
    changed(tensors)
    with pytest.raises(ValueError, match=r"by the tensors across, at, .*: server and node need one version"):
        LeftOut.of_tensors(tensors)


@pytest.mark.parametrize(("noise", "least"), [(0.5, 0.1), (3.0, 0.5), (10.0, 0.9)])
def test_second_moments_are_nearer_to_exact_ones_without_their_noise(noise: float, least: float) -> None:
    """By this part of the squared error at least."""
    records = made(250, 4)
    fit, exact = fitted(records, noise, 4), records.phi.T @ records.phi
    noisy = float((fit.moments.second[0] - exact).square().sum())
    assert float((without_noise(fit.moments) - exact).square().sum()) < (1 - least) * noisy
