"""The bound on epsilon holds against chance, and grows with what an attacker finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedfair.auditing.bounds import epsilon_from_guesses, epsilon_of_mu, gaussian_bound, lower_bound, p_value


def one_gaussian_release(mu: float, canaries: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood ratios of canaries that each move their own number by mu standard deviations, and the truth."""
    draws = np.random.default_rng(seed)
    included = draws.random(canaries) < 0.5
    return mu * (draws.standard_normal(canaries) + mu * included) - mu**2 / 2, included


def test_pure_privacy_is_a_biased_coin() -> None:
    """Theorem 5.2 with delta 0: randomised response with e^eps / (1 + e^eps), summed by hand."""
    coin = math.e**0.5 / (1 + math.e**0.5)
    by_hand = sum(math.comb(20, k) * coin**k * (1 - coin) ** (20 - k) for k in range(16, 21))
    assert p_value(100, 20, 16, 0.5, 0.0) == pytest.approx(by_hand)


def test_delta_adds_the_worst_window_below() -> None:
    """Theorem 5.2, its second term by a plain loop."""
    coin = 1 / (1 + math.exp(-1.0))
    windows = [sum(stats.binom.pmf(v, 30, coin) for v in range(25 - i, 25)) / i for i in range(1, 26)]
    expected = stats.binom.sf(24, 30, coin) + 2 * 200 * 1e-5 * max(windows)
    assert p_value(200, 30, 25, 1.0, 1e-5) == pytest.approx(expected)


def test_epsilon_is_where_chance_would_have_the_stated_probability() -> None:
    found = epsilon_from_guesses(1000, 200, 160, 1e-6, 0.05)
    assert p_value(1000, 200, 160, found, 1e-6) == pytest.approx(0.05, abs=1e-6)
    assert epsilon_from_guesses(1000, 200, 100, 1e-6, 0.05) == 0
    assert epsilon_from_guesses(1000, 200, 0, 1e-6, 0.05) == 0


def test_replacing_is_removing_and_adding() -> None:
    """The same guesses about pairs show half as much, and less with a delta that grows with epsilon."""
    single = epsilon_from_guesses(500, 100, 80, 0.0, 0.05)
    assert epsilon_from_guesses(500, 100, 80, 0.0, 0.05, "replace") == pytest.approx(single / 2, rel=1e-6)
    assert epsilon_from_guesses(500, 100, 80, 1e-4, 0.05, "replace") < single / 2


def test_blind_guesses_show_nothing_more_often_than_the_confidence_allows() -> None:
    shown = 0
    for seed in range(200):
        scores, included = one_gaussian_release(0.0, 400, seed)
        draws = np.random.default_rng(1000 + seed)
        shown += lower_bound(draws.standard_normal(400) + 0 * scores, included, 1e-5).epsilon > 0
    assert shown <= 20  # of 200 at 5 %, five deviations


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_one_gaussian_release_is_bounded_from_below_at_a_third_of_its_epsilon(epsilon: float) -> None:
    mu = next(mu for mu in np.arange(0.05, 3, 0.005) if epsilon_of_mu(mu, 1e-5) >= epsilon)
    for seed in range(5):
        scores, included = one_gaussian_release(mu, 20_000, seed)
        assert 0.35 * epsilon < lower_bound(scores, included, 1e-5).epsilon < epsilon
        assert 0.4 * epsilon < gaussian_bound(scores, included, 1e-5) < epsilon * 1.01


def test_epsilon_of_mu_solves_the_published_equation() -> None:
    """Balle and Wang 2018: sigma = 1 and delta = 1e-5 give epsilon 4.377 for sensitivity 1."""
    assert epsilon_of_mu(1.0, 1e-5) == pytest.approx(4.377, abs=2e-3)
    assert epsilon_of_mu(0.0, 1e-5) == 0


def test_perfect_knowledge_is_bounded_only_by_the_number_of_guesses() -> None:
    included = np.arange(10_000) % 2 == 0
    scores = np.where(included, 1.0, -1.0)
    few, many = lower_bound(scores[:100], included[:100], 0.0), lower_bound(scores, included, 0.0)
    assert 2 < few.epsilon < 4 < 6 < many.epsilon
    assert many.correct == many.guesses


def test_a_choice_among_shares_of_the_canaries_is_paid_for() -> None:
    """Each of the four has a quarter of the error, so that the largest of them is still a bound."""
    scores, included = one_gaussian_release(1.0, 2000, 0)
    order = np.argsort(-np.abs(scores))
    right = ((scores > 0) == included)[order]
    each = [epsilon_from_guesses(2000, guesses, int(right[:guesses].sum()), 1e-5, 0.05 / 4)
            for guesses in (40, 100, 200, 1000)]
    assert lower_bound(scores, included, 1e-5).epsilon == pytest.approx(max(each))
    assert max(each) > 1


def test_the_delta_of_replacing_grows_with_epsilon() -> None:
    """(2 epsilon, (1 + e^epsilon) delta): at the bound the guesses have just the probability that is allowed."""
    found = epsilon_from_guesses(500, 100, 80, 1e-4, 0.05, "replace")
    assert p_value(500, 100, 80, 2 * found, (1 + math.exp(found)) * 1e-4) == pytest.approx(0.05, abs=1e-6)
