"""The bound by a trade-off curve in one run: against a linear program, exact games, and jax_privacy's figures."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from fedfair.auditing.bounds import (
    Least,
    curve_bound,
    epsilon_of_mu,
    gaussian,
    gaussian_bound,
    least_total,
    lower_bound,
    mu_from_guesses,
    mu_of_epsilon,
)
from tests.fedfair.auditing.test_bounds import one_gaussian_release
from tests.for_each import for_each


def coin(epsilon: float) -> Least:
    """Return the curve of randomised response, that is of pure epsilon-differential privacy."""
    return lambda p: max(math.exp(-epsilon) * p, 1 - math.exp(epsilon) * (1 - p), 0.0)


def rare_disaster(delta: float) -> Least:
    """Return the curve of a mechanism that releases all records with probability delta, and else nothing."""
    return lambda p: max(p - delta, 0.0)


def largest_error(canaries: int, guesses: int, correct: int, least: Least) -> float:
    """Return the error below which `least_total` refutes a curve: the bound on P[at least `correct` right]."""
    if least_total(canaries, guesses, correct, 1.0, least) <= 1:
        return 1.0
    return float(optimize.brentq(lambda error: least_total(canaries, guesses, correct, error, least) - 1, 0.0, 1.0,
                                 xtol=1e-12))


def by_linear_program(canaries: int, guesses: int, correct: int, least: Least) -> float:
    """Return the largest P[at least `correct` right] over all probabilities p_0, ..., p_r that keep the inequalities.

    The curve is replaced by lines below it, one more through each point at which a solution broke it.
    """
    numbers = np.arange(guesses + 1)
    right = [np.where(numbers >= i, numbers / canaries, 0) for i in range(guesses + 2)]
    wrong = [np.where(numbers >= i, (guesses - numbers) / canaries, 0) for i in range(guesses + 1)]
    rows, limits = [np.zeros(guesses + 1)], [0.0]
    for _ in range(200):
        found = optimize.linprog(-(numbers >= correct).astype(float), np.array(rows), np.array(limits),
                                 np.ones((1, guesses + 1)), [1.0])
        broken = 0
        for i in range(guesses):
            at = float(right[i + 1] @ found.x)
            if least(at) > wrong[i] @ found.x + 1e-9:
                low, high = max(at - 1e-7, 0.0), min(at + 1e-7, 1.0)
                broken, slope = broken + 1, (least(high) - least(low)) / (high - low)
                rows.append(slope * right[i + 1] - wrong[i])
                limits.append(slope * at - least(at))
        if not broken:
            break
    return -float(found.fun)


@for_each("least", [gaussian(0.5), gaussian(2.0), coin(1.0)])
@for_each(("canaries", "guesses"), [(6, 6), (12, 5), (40, 8)])
def test_no_probabilities_that_keep_the_inequalities_make_more_right_guesses_likelier(
        least: Least, canaries: int, guesses: int) -> None:
    """And some make them as likely, so that the bound is the best that follows from the inequalities."""
    for correct in range(1, guesses + 1):
        assert largest_error(canaries, guesses, correct, least) == pytest.approx(
            by_linear_program(canaries, guesses, correct, least), rel=1e-3, abs=1e-6)


def tails(probabilities: np.ndarray) -> np.ndarray:
    """Return P[at least v] for each v."""
    return np.cumsum(probabilities[::-1])[::-1]


EXACT: dict[str, tuple[Least, Callable[[int], np.ndarray]]] = {
    "pure": (coin(1.0), lambda m: stats.binom.pmf(np.arange(m + 1), m, math.e / (1 + math.e))),
    "Gaussian": (gaussian(1.0), lambda m: stats.binom.pmf(np.arange(m + 1), m, stats.norm.cdf(0.5))),
    "disaster": (rare_disaster(0.02), lambda m: 0.98 * stats.binom.pmf(np.arange(m + 1), m, 0.5)
                 + 0.02 * (np.arange(m + 1) == m)),
}
"""Mechanisms whose number of right guesses, on all of m canaries, is known exactly. Of the last, all are disturbed at
once."""


@for_each("name", EXACT)
@for_each("canaries", [1, 5, 30, 200])
def test_games_that_are_known_exactly_stay_below_the_bound(name: str, canaries: int) -> None:
    least, probabilities = EXACT[name]
    for correct, tail in enumerate(tails(probabilities(canaries))):
        assert tail <= largest_error(canaries, canaries, correct, least) + 1e-9
        assert least_total(canaries, canaries, correct, tail, least) <= 1 + 1e-6


JAX_PRIVACY = [
    (20_000, 400, 290, 0.0125, 1e-5, 0.789059), (20_000, 1000, 700, 0.0125, 1e-5, 0.801456),
    (20_000, 2000, 1700, 0.05, 1e-5, 2.185869), (20_000, 10_000, 6000, 0.0125, 1e-5, 0.464860),
    (1000, 200, 160, 0.05, 1e-6, 1.960148), (1000, 20, 20, 0.05, 1e-5, 2.363368),
    (100, 100, 70, 0.05, 1e-3, 0.685542), (60_000, 1200, 1190, 0.0125, 1e-9, 6.777753),
    (1000, 200, 101, 0.05, 1e-5, 0.0)]
"""Canaries, guesses, right ones, error, delta, and the epsilon of `epsilon_one_run_fdp` of jax_privacy 2.0.0 (from
PyPI; that of its repository at commit 8967688, 2.3.0.dev0, is the same), computed with dp_accounting 0.6.0."""


@for_each(("canaries", "guesses", "correct", "error", "delta", "epsilon"), JAX_PRIVACY)
def test_another_implementation_has_the_same_figures(canaries: int, guesses: int, correct: int, error: float,
                                                     delta: float, epsilon: float) -> None:
    found = epsilon_of_mu(mu_from_guesses(canaries, guesses, correct, error), delta)
    assert found == pytest.approx(epsilon, abs=2e-6)


@pytest.mark.parametrize(("claim", "before"), [(1.0, 0.54), (3.0, 1.66), (8.0, 3.58)])
def test_claims_are_reached_better_than_by_epsilon_and_delta_alone(claim: float, before: float) -> None:
    """`before` is what `lower_bound` found of dpsgd on average (docs/results.md)."""
    found = []
    for seed in range(5):
        scores, included = one_gaussian_release(mu_of_epsilon(claim, 1e-5), 20_000, seed)
        found.append(curve_bound(scores, included, 1e-5).epsilon)
        assert lower_bound(scores, included, 1e-5).epsilon < found[-1] < gaussian_bound(scores, included, 1e-5)
    assert before < np.mean(found) <= max(found) < claim


def test_blind_guesses_show_nothing_more_often_than_the_confidence_allows() -> None:
    shown = 0
    for seed in range(200):
        draws = np.random.default_rng(seed)
        shown += curve_bound(draws.standard_normal(400), draws.random(400) < 0.5, 1e-5).epsilon > 0
    assert shown <= 20  # of 200 at 5 %


def test_a_true_curve_is_refuted_no_more_often_than_the_confidence_allows() -> None:
    """Three canaries in four are disturbed together: they take the noise of one number."""
    refuted = 0
    for seed in range(300):
        draws = np.random.default_rng(seed)
        included = draws.random(40) < 0.5
        noise = draws.standard_normal(40)
        noise[:30] = noise[0]
        refuted += curve_bound(noise + included - 0.5, included, 1e-5).epsilon > epsilon_of_mu(1.0, 1e-5)
    assert refuted <= 28  # of 300 at 5 %, three deviations above


def test_a_pair_of_records_has_twice_the_mu() -> None:
    scores, included = one_gaussian_release(1.0, 2000, 0)
    single = curve_bound(scores, included, 1e-5).epsilon
    pair = curve_bound(scores, included, 1e-5, neighbours="replace").epsilon
    assert mu_of_epsilon(pair, 1e-5) == pytest.approx(mu_of_epsilon(single, 1e-5) / 2, rel=1e-3)


def test_without_a_right_guess_or_with_all_of_them() -> None:
    assert mu_from_guesses(100, 100, 0, 0.05) == 0
    assert 2 < mu_from_guesses(1000, 1000, 1000, 0.05) < 10
