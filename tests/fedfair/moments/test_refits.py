"""What noise does to scores: how often their intervals hold those of a fit without noise, and what refits decide."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Bounding, Encoding, Feature
from fedfair.mechanisms.randomness import generator
from fedfair.moments.filled_bins import Filled, filled
from fedfair.moments.front import Front, Point, Refits, front
from fedfair.moments.heads import Head
from fedfair.moments.logistic import Course, start, stepped
from fedfair.moments.posterior import posterior
from fedfair.moments.refits import refits, sign_changes
from fedfair.moments.release import Moments
from fedfair.moments.sums import mixed, moment_sums, unmixed, unsvec

COLUMNS, LEVELS = 8, 8
ENCODING = Encoding(tuple(Feature(f"c{column}", str(level)) for column in range(COLUMNS) for level in range(LEVELS)),
                    bounding=Bounding(math.sqrt(COLUMNS), 1.0))
NAMES = [Point("logistic", tau=tau) for tau in (1.0, 0.3)]


class Table(NamedTuple):
    """Features, labels and groups of some records."""

    x: Tensor
    y: Tensor
    group: Tensor


class Fit(NamedTuple):
    """A fit: its front, what noise does to it, and which bins are told to have records."""

    front: Front
    refits: Refits
    bins: Filled


def table(records: int, seed: int = 0) -> Table:
    """Make records of which some bins are rare, and whose groups differ in a column."""
    draws, codes = generator(seed, "table"), []
    effects = 0.6 * torch.randn(COLUMNS * LEVELS, generator=draws, dtype=torch.float64)
    for _ in range(COLUMNS):
        shares = torch.rand(LEVELS, generator=draws, dtype=torch.float64) ** 2 + 0.01
        codes.append(torch.nn.functional.one_hot(torch.multinomial(shares, records, True, generator=draws), LEVELS))
    x = torch.cat(codes, 1).double()
    score = x @ effects - (x @ effects).mean() - 0.5
    y = (torch.rand(records, generator=draws, dtype=torch.float64) < torch.sigmoid(score)).long()
    group = (torch.rand(records, generator=draws, dtype=torch.float64) < 0.2 + 0.5 * x[:, 0]).long()
    assert ENCODING.bounding is not None
    return Table(ENCODING.bounding.of(x), y, group)


def fit(made: Table, noise: float, draws: torch.Generator, clip: float = 1.0) -> Fit:
    """Fit as `strategies.moments` does, with noise of a deviation on each number."""
    exact = moment_sums(made.x, made.y, made.group, 2, 2, by_group=False)
    second = exact["second"] + noise * torch.randn(exact["second"].shape, generator=draws, dtype=torch.float64)
    first = mixed(exact["first"]) + noise * torch.randn(exact["first"].shape, generator=draws, dtype=torch.float64)
    assert ENCODING.bounding is not None
    released = Moments(unsvec(second), unmixed(first), noise, ENCODING.bounding.last, mixing=True)
    bins = filled(released, ENCODING)
    told = released.of_features(bins.kept)
    pooled, path = told.pooled(), []
    head, labels = start(pooled), torch.nn.functional.one_hot(made.y, 2)
    for number in (1, 2, 3):
        wrong = torch.softmax(made.x @ (bins.lift @ head.weights), 1) - labels
        gradient = made.x.T @ wrong.clamp(-clip, clip)  # of features of norm 1
        gradient = gradient + clip * noise * torch.randn(gradient.shape, generator=draws, dtype=torch.float64)
        path.append(head.weights[:, 1] - head.weights[:, 0])
        head = stepped(head, gradient[bins.kept], pooled, number)
    course = Course(pooled, 1.0, torch.stack([*path, head.weights[:, 1] - head.weights[:, 0]]), (clip * noise,) * 3,
                    clip)
    together = posterior(course, told, bins, ENCODING)
    made_front = front(told, NAMES, "demographic_parity", 1, Head(together.of_classes, head.inverse))
    found = refits(told, course, together, NAMES, made_front.weights, "demographic_parity", 1,
                   bins, ENCODING, generator(1, "refits"))
    return Fit(made_front._replace(weights=bins.ending @ made_front.weights), found, bins)


@pytest.mark.parametrize(("records", "noise"), [(40_000, 6.0), (8_000, 8.0)])
def test_intervals_hold_the_scores_of_a_fit_without_noise_about_as_often_as_they_say(records: int, noise: float
                                                                                      ) -> None:
    made = table(records)
    free, draws = fit(made, 0.0, generator(0, "free")).front.weights[..., 1], generator(0, "noise")
    rare = made.x[:, :-1].count_nonzero(0) < records / 80
    held, without, of_rare = [], [], []
    for _ in range(40):
        found = fit(made, noise, draws)
        told = ~found.refits.deviations[:, :-1].isnan()
        apart = (found.front.weights[:, :-1, 1] - free[:, :-1]).abs()
        held.append((apart < 1.96 * found.refits.deviations[:, :-1])[:, told[0]].double().mean(1))
        of_rare.append((apart < 1.96 * found.refits.deviations[:, :-1])[0, told[0] & rare].double().mean())
        without.append(told.double().mean())
    of_all, of_fair = torch.stack(held).mean(0).tolist()  # tau 1 and 0.3
    assert 0.94 <= of_all <= 0.98
    assert 0.90 <= of_fair <= 0.98  # where the floor of eigenvalues also turns the direction that is taken off
    assert float(torch.stack(of_rare).nanmean()) > 0.85  # noise alone does not move them that far
    assert float(torch.stack(without).mean()) > 0.7


@pytest.mark.parametrize("clip", [0.7, 0.5])
def test_intervals_of_clipped_steps_hold_at_least_as_often_as_they_say(clip: float) -> None:
    """They hold the scores of a fit that clips as much without noise."""
    made = table(40_000)
    free, draws = fit(made, 0.0, generator(0, "free"), clip).front.weights[0, :-1, 1], generator(0, "noise")
    held = []
    for _ in range(12):
        found = fit(made, 6.0, draws, clip)
        reach = 1.96 * found.refits.deviations[0, :-1]
        told = ~reach.isnan()
        held.append(((found.front.weights[0, :-1, 1] - free).abs() < reach)[told].double().mean())
    assert 0.95 <= float(torch.stack(held).mean()) <= 0.99


def test_refits_decide_otherwise_as_often_as_is_said() -> None:
    made, noise = table(20_000), 8.0
    draws = generator(2, "noise")
    fits = [fit(made, noise, draws) for _ in range(12)]
    weights = [each.front.weights[..., 1] - each.front.weights[..., 0] for each in fits]
    decided = torch.stack([(made.x @ own.T).T > 0 for own in weights])
    changed = torch.stack([(decided[place] != decided[place + 1]).double() for place in range(0, 12, 2)]).mean(0)
    said = torch.stack([each.refits.changed for each in fits]).mean(0)
    for group in range(2):
        assert said[:, group].tolist() == pytest.approx(changed[:, made.group == group].mean(1).tolist(), rel=0.3)
    assert float(said.min()) > 0.01


def test_draws_have_the_deviations_of_noise() -> None:
    found = fit(table(20_000), 6.0, generator(3, "noise"))
    spread = found.refits.draws.std(0)[:, :-1]
    told = ~found.refits.deviations[:, :-1].isnan()
    assert bool((spread[told] < 1.4 * found.refits.deviations[:, :-1][told]).all())
    common = told & (found.bins.records.numbers > 2000)  # type: ignore[union-attr]
    assert float((spread / found.refits.deviations[:, :-1])[common].median()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("mean", "spread", "moved"), [(0.3, 1.0, 0.2), (-1.0, 2.0, 0.5), (0.0, 1.0, 3.0)])
def test_changes_of_sign_are_those_of_draws(mean: float, spread: float, moved: float) -> None:
    draws = generator(0, "signs")
    first = mean + spread * torch.randn(400_000, generator=draws, dtype=torch.float64)
    second = first + moved * torch.randn(400_000, generator=draws, dtype=torch.float64)
    said = sign_changes(*(torch.tensor([number], dtype=torch.float64) for number in (mean, spread, moved)))
    assert float(said) == pytest.approx(float(((first > 0) != (second > 0)).double().mean()), abs=0.003)


def test_nothing_changes_without_noise_or_differences() -> None:
    nothing, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert float(sign_changes(one, one, nothing)) == 0.0
    assert float(sign_changes(one, nothing, nothing)) == 0.0
