"""Classifiers from moments: without noise, those of well-known libraries; with it, what theory says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from fedfair.moments import sums
from fedfair.moments.front import TAUS, Point, front, group_weights, points, squared_losses
from fedfair.moments.heads import Head, constrained, directions, discriminant, least_squares
from fedfair.moments.release import Moments
from tests.for_each import for_each

WIDTH, LAST = 6, 0.4


def drawn(n: int = 4000, classes: int = 2, groups: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Draw records whose classes and groups differ in their means; the last feature is constant."""
    draws = np.random.default_rng(seed)
    y, group = draws.integers(classes, size=n), draws.integers(groups, size=n)
    x = 0.1 * draws.normal(size=(n, WIDTH)) + 0.1 * np.eye(WIDTH)[y] + 0.05 * np.eye(WIDTH)[-2 - group]
    x[:, -1] = LAST
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)


def exact(x: Tensor, y: Tensor, group: Tensor, classes: int, groups: int, by_group: bool = False) -> Moments:
    """Return moments without noise."""
    made = sums.moment_sums(x, y, group, groups, classes, by_group)
    return Moments(sums.unsvec(made["second"]), made["first"], 0.0, LAST)


def test_without_noise_least_squares_is_the_usual_fit() -> None:
    x, y, group = drawn()
    head = least_squares(exact(x, y, group, 2, 2).pooled())
    usual = torch.linalg.lstsq(x, 2.0 * y.double() - 1).solution
    assert torch.allclose((head.weights[:, 1] - head.weights[:, 0]) / 2, usual, atol=1e-7)


@for_each("priors", ["equal", "counted"])
@for_each("classes", [2, 4])
def test_without_noise_discriminant_analysis_is_that_of_scikit_learn(priors: str, classes: int) -> None:
    x, y, group = drawn(classes=classes)
    keep = (y != 0) | (torch.arange(len(y)) % 3 == 0)  # class 0 is rarer
    x, y, group = x[keep], y[keep], group[keep]
    head = discriminant(exact(x, y, group, classes, 2).pooled(), priors)  # type: ignore[arg-type]
    usual = LinearDiscriminantAnalysis(solver="lsqr").fit(x[:, :-1].numpy(), y.numpy())
    scores, wanted = x @ head.weights, _centred(usual.decision_function(x[:, :-1].numpy()), classes)
    if priors == "equal":  # scikit-learn's covariance follows priors that are given, so they are taken off here
        wanted = wanted - (np.log(usual.priors_) - np.log(usual.priors_).mean())
    assert np.allclose(scores - scores.mean(1, keepdim=True), wanted, atol=1e-5)


def _centred(scores: np.ndarray, classes: int) -> np.ndarray:
    """Return scores of each class around their mean; of two classes scikit-learn gives the difference."""
    if classes == 2:
        return np.stack([-scores / 2, scores / 2], 1)
    return scores - scores.mean(1, keepdims=True)


def test_what_noise_adds_to_a_quadratic_form_is_taken_out_on_average() -> None:
    """E (m + e)' A (m + e) = m' A m + tr(A) s^2, for noise e of deviation s that A does not depend on."""
    draws = torch.Generator().manual_seed(0)
    inverse = torch.diag(torch.arange(1.0, WIDTH + 1, dtype=torch.float64))
    mean, deviation = torch.ones(WIDTH, dtype=torch.float64), 0.3
    noisy = mean + deviation * torch.randn(200_000, WIDTH, generator=draws, dtype=torch.float64)
    debiased = torch.einsum("ni,ij,nj->n", noisy, inverse, noisy) - inverse.trace() * deviation**2
    assert float(debiased.mean()) == pytest.approx(float(mean @ inverse @ mean), abs=5 * float(debiased.std()) / 447)


def test_without_the_debiasing_a_small_class_is_hardly_predicted() -> None:
    """The mean of few records is so noisy that it looks far from every record."""
    classes, draws = 4, torch.Generator().manual_seed(1)
    x, y, group = drawn(40_000, classes, 1)
    keep = (y != 3) | (torch.arange(len(y)) % 100 == 0)
    made = sums.moment_sums(x[keep], y[keep], group[keep], 1, classes, False)
    noise = 3.0
    noisy = {name: value + noise * torch.randn(value.shape, generator=draws, dtype=torch.float64)
             for name, value in made.items()}
    pooled = Moments(sums.unsvec(noisy["second"]), noisy["first"], noise, LAST).pooled()
    with_it, counts = discriminant(pooled), pooled.by_class
    extra = with_it.inverse.trace() * (noise / counts) ** 2 / 2
    without = with_it.weights.clone()
    without[-1] -= extra / LAST
    share = [float(((x @ weights).argmax(1) == 3).double().mean()) for weights in (with_it.weights, without)]
    assert float((y == 3).double().mean()) > 0.2
    assert share[0] > 2 * share[1]


@for_each("constraint", ["demographic_parity", "equal_opportunity", "both"])
@for_each("tau", [1.0, 0.3, 0.0, -0.2])
def test_mean_scores_differ_tau_times_as_much_and_nothing_else_loses_less(constraint: str, tau: float) -> None:
    x, y, group = drawn(groups=3)
    moments = exact(x, y, group, 2, 3)
    head, across = least_squares(moments.pooled()), directions(moments, constraint, 1)  # type: ignore[arg-type]
    weights = constrained(head, across, tau)
    assert torch.allclose(across.T @ weights, tau * across.T @ head.weights, atol=1e-9)
    best = _loss(x, y, weights[:, 1])
    draws = torch.Generator().manual_seed(0)
    for _ in range(20):
        step = 0.1 * torch.randn(WIDTH, generator=draws, dtype=torch.float64)
        step = step - across @ torch.linalg.pinv(across.T @ across) @ (across.T @ step)
        assert _loss(x, y, weights[:, 1] + step) > best - 1e-12
    means = [float((x @ weights)[group == k, 1].mean()) for k in range(3)]
    if constraint != "equal_opportunity":
        free = [float((x @ head.weights)[group == k, 1].mean()) for k in range(3)]
        assert max(means) - min(means) == pytest.approx(abs(tau) * (max(free) - min(free)), abs=1e-9)


def _loss(x: Tensor, y: Tensor, weights: Tensor) -> float:
    """Return the mean squared error against +1 and -1."""
    return float(((x @ weights - (2.0 * y.double() - 1)) ** 2).mean())


def test_equal_opportunity_needs_a_favourable_class() -> None:
    with pytest.raises(ValueError, match="no class is favourable"):
        directions(exact(*drawn(), 2, 2), "equal_opportunity", None)


def test_losses_by_group_are_those_of_the_records() -> None:
    x, y, group = drawn()
    moments, weights = exact(x, y, group, 2, 2, by_group=True), torch.randn(WIDTH, 2, dtype=torch.float64)
    wanted = torch.stack([1 - 2.0 * y, 2.0 * y - 1], 1)
    slow = [float(((x @ weights - wanted) ** 2).sum(1)[group == k].mean()) for k in range(2)]
    assert squared_losses(moments, weights).tolist() == pytest.approx(slow, rel=1e-9)


def test_weights_for_the_worst_group_lower_its_loss() -> None:
    x, y, group = drawn()
    y = torch.where(group == 1, 1 - y, y)  # what separates one group's classes is wrong for the other
    keep = (group == 0) | (torch.arange(len(y)) % 4 == 0)
    moments = exact(x[keep], y[keep], group[keep], 2, 2, by_group=True)
    worst = []
    for strength in (0.0, 0.5, 1.0):
        head = least_squares(moments.pooled(group_weights(moments, strength)))
        worst.append(float(squared_losses(moments, head.weights).max()))
    assert worst[0] > worst[1] > worst[2]


def test_weights_for_the_worst_group_are_finite_however_large_the_noise_is() -> None:
    """A noisy loss can be huge, and its exponential infinite."""
    x, y, group = drawn()
    made, draws = exact(x[:40], y[:40], group[:40], 2, 2, by_group=True), torch.Generator().manual_seed(0)
    for _ in range(20):
        second = sums.unsvec(1e4 * torch.randn(2, WIDTH * (WIDTH + 1) // 2, generator=draws, dtype=torch.float64))
        first = made.first + 1e4 * torch.randn(made.first.shape, generator=draws, dtype=torch.float64)
        weights = group_weights(Moments(made.second + second, first, 1e4, LAST), 1.0)
        assert all(math.isfinite(weight) and weight >= 0 for weight in weights)


def test_weights_of_groups_need_moments_of_each() -> None:
    with pytest.raises(ValueError, match=r"options\.by_group = true"):
        exact(*drawn(), 2, 2).pooled((1.0, 2.0))


def test_noise_of_weighted_groups_adds_up() -> None:
    x, y, group = drawn()
    moments = exact(x, y, group, 2, 2, by_group=True)
    pooled = Moments(moments.second, moments.first, 2.0, LAST).pooled((3.0, 4.0))
    assert pooled.noise_second == pooled.noise_first == pytest.approx(10.0)
    together = Moments(moments.second.sum(0, keepdim=True), moments.first, 2.0, LAST).pooled()
    assert (together.noise_second, together.noise_first) == pytest.approx((2.0, 2.0 * math.sqrt(2)))


def test_the_front_has_each_point_as_if_it_were_made_alone() -> None:
    moments = exact(*drawn(), 2, 2, by_group=True)
    grid = points(("least_squares", "equal"), True, True, 2)
    made = front(moments, grid, "demographic_parity", 1)
    assert len(set(grid)) == len(grid) == len(made.weights) == 2 * 3 * len(TAUS) + 2 * 9 * 6 + 2 * 4 + 1
    assert not any(point.threshold != 0.5 for point in points(("equal",), True, True, 3))
    for at in (0, 5, 40, 200, len(grid) - 1):
        alone = front(moments, [grid[at]], "demographic_parity", 1)
        assert torch.allclose(made.weights[at], alone.weights[0], rtol=0, atol=1e-10)


def test_directions_without_any_record_stay_finite() -> None:
    """A category that nobody has makes S singular."""
    x, y, group = drawn()
    x[:, 2] = 0
    head: Head = least_squares(exact(x, y, group, 2, 2).pooled())
    assert bool(head.weights.isfinite().all())
    assert float(head.weights[2].abs().max()) < 1e-6


def test_points_are_named_in_words() -> None:
    assert Point("equal", 0.5, -0.1, 0.25).name == "equal priors, floor 0.5, tau -0.1, worst group 0.25"
    assert Point("least_squares").name == "least squares"
    assert Point("logistic", tau=0.0, threshold=0.6).name == "logistic, tau 0, threshold 0.6"


@for_each("favourable", [0, 1])
@for_each("tau", [1.0, 0.3])
def test_a_threshold_decides_for_the_favourable_class_above_its_probability(favourable: int, tau: float) -> None:
    x, y, group = drawn()
    moments = exact(x, y, group, 2, 2)
    trained = Head(3 * least_squares(moments.pooled()).weights, least_squares(moments.pooled()).inverse)
    for head in ("least_squares", "counted", "logistic"):
        even, high = front(moments, [Point(head, tau=tau), Point(head, tau=tau, threshold=0.7)],  # type: ignore[arg-type]
                           "demographic_parity", favourable, trained).weights
        margin = (x @ even)[:, favourable] - (x @ even)[:, 1 - favourable]
        probability = (1 + margin / 2) / 2 if head == "least_squares" else torch.sigmoid(margin)
        decided = (x @ high).argmax(1) == favourable
        assert torch.equal(decided, probability > 0.7)
        assert 0 < int(decided.sum()) < int((margin > 0).sum())


def test_a_threshold_needs_a_favourable_class() -> None:
    with pytest.raises(ValueError, match=r"a threshold of 0\.6 needs a favourable class"):
        front(exact(*drawn(), 2, 2), [Point("least_squares", threshold=0.6)], "demographic_parity", None)


def test_noise_of_groups_that_differs_adds_up_by_group() -> None:
    x, y, group = drawn()
    moments = exact(x, y, group, 2, 2, by_group=True)
    uneven = Moments(moments.second, moments.first, 9.0, LAST, (3.0, 4.0))
    assert (uneven.pooled().noise_second, uneven.pooled().noise_first) == pytest.approx((5.0, 5.0))
    assert uneven.pooled((2.0, 1.0)).noise_first == pytest.approx(math.sqrt(52))
    together = Moments(moments.second.sum(0, keepdim=True), moments.first, 9.0, LAST, (3.0, 4.0)).pooled()
    assert (together.noise_second, together.noise_first) == pytest.approx((9.0, 5.0))
    least = Moments(moments.second, torch.zeros_like(moments.first), 9.0, LAST, (3.0, 40.0)).group_means()
    assert bool(least.isfinite().all())


def test_equal_mean_scores_are_not_equal_rates() -> None:
    """Where scores of one group are spread more, more of them are positive, although the means are the same."""
    draws = torch.Generator().manual_seed(0)
    group = torch.arange(40_000) % 2
    y = (torch.rand(len(group), generator=draws) < 0.3 + 0.2 * group).long()
    x = 0.03 * torch.randn(len(group), WIDTH, generator=draws, dtype=torch.float64)
    x[:, 0] += torch.tensor([0.05, 0.3])[group] * (2 * y - 1)
    x[:, 1] += 0.2 * group
    x[:, -1] = LAST
    moments = exact(x, y, group, 2, 2)
    head, across = least_squares(moments.pooled()), directions(moments, "demographic_parity", 1)
    scores = x @ constrained(head, across, 0.0)
    apart = scores[:, 1] - scores[:, 0]
    means, rates = ([float(part[group == k].mean()) for k in range(2)] for part in (apart, (apart > 0).double()))
    assert means[0] == pytest.approx(means[1], abs=1e-9)
    assert abs(rates[1] - rates[0]) > 0.2


def _accuracy(classes: int, n: int, width: int, noise: float) -> float:
    """Return the accuracy of discriminant analysis on n records of separated classes, from noisy moments."""
    draws = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, width, generator=draws, dtype=torch.float64) / math.sqrt(width)
    x[:, : classes] += 2 * torch.eye(classes, dtype=torch.float64)[y] / math.sqrt(width)
    x = x / x.norm(dim=1, keepdim=True) * math.sqrt(1 - LAST**2)
    x[:, -1] = LAST
    made = sums.moment_sums(x, y, torch.zeros_like(y), 1, classes, False)
    noisy = {name: value + noise * torch.randn(value.shape, generator=draws, dtype=torch.float64)
             for name, value in made.items()}
    head = discriminant(Moments(sums.unsvec(noisy["second"]), noisy["first"], noise, LAST).pooled())
    return float(((x @ head.weights).argmax(1) == y).double().mean())


def test_moments_lose_where_records_are_few_for_their_features() -> None:
    """By d^1.5 sigma against n: twenty times the records, or a quarter of the features, bring back what is lost."""
    without, few = _accuracy(4, 2_000, 80, 0.0), _accuracy(4, 2_000, 80, 20.0)
    many, narrow = _accuracy(4, 40_000, 80, 20.0), _accuracy(4, 2_000, 20, 20.0)
    assert few < without - 0.15
    assert many > without - 0.1
    assert narrow > few + 0.1


def test_what_is_not_linear_in_the_features_is_not_learned() -> None:
    """Whether two features have the same sign: each alone says nothing of it, with as many records as one likes."""
    draws = torch.Generator().manual_seed(0)
    x = 0.3 * torch.randn(20_000, WIDTH, generator=draws, dtype=torch.float64)
    x[:, -1] = LAST
    y = (x[:, 0] * x[:, 1] > 0).long()
    head = least_squares(exact(x, y, torch.zeros_like(y), 2, 1).pooled())
    assert float(((x @ head.weights).argmax(1) == y).double().mean()) < 0.53
