"""The ideal attacker's bound is what one really reaches who knows all but the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfair.accounting import Release, epsilon
from fedfair.auditing.bounds import epsilon_of_mu, ideal_bound, lower_bound, mu_of_epsilon
from tests.fedfair.auditing.test_bounds import one_gaussian_release
from tests.for_each import for_each


@for_each("claimed", [0.3, 1.0, 3.0, 8.0])
def test_an_attacker_of_one_gaussian_release_reaches_it(claimed: float) -> None:
    mu = mu_of_epsilon(claimed, 1e-5)
    reached = [lower_bound(*one_gaussian_release(mu, 5000, seed), 1e-5).epsilon for seed in range(8)]
    ideal = ideal_bound(claimed, 5000, 1e-5)
    assert 0.7 * np.mean(reached) - 0.04 < ideal < 1.1 * np.mean(reached) + 0.02  # which are the best of four shares
    assert ideal < claimed


@for_each("claimed", [1.0, 2.0, 3.0, 5.0, 8.0])
def test_of_epsilons_from_1_to_8_it_is_about_half(claimed: float) -> None:
    assert 0.4 * claimed < ideal_bound(claimed, 20_000, 1e-5) < 0.55 * claimed


def test_mu_is_the_inverse_of_epsilon() -> None:
    for mu in (0.01, 0.5, 2.0, 30.0):
        assert mu_of_epsilon(epsilon_of_mu(mu, 1e-5), 1e-5) == pytest.approx(mu, rel=1e-6)
    assert mu_of_epsilon(epsilon({Release(1.0, 4.0): 1}, 1e-5), 1e-5) == pytest.approx(1 / 4, rel=1e-3)
    assert (mu_of_epsilon(0.0, 1e-5), mu_of_epsilon(math.inf, 1e-5)) == (0.0, math.inf)


def test_it_grows_with_the_canaries_and_is_nothing_where_there_are_few() -> None:
    found = [ideal_bound(1.0, canaries, 1e-5) for canaries in (20, 500, 5000, 50_000)]
    assert found == sorted(found)
    assert found[0] == 0 < found[2] < found[3]


def test_without_privacy_it_is_that_of_guesses_without_an_error() -> None:
    known, included = one_gaussian_release(1000.0, 400, 0)
    assert ideal_bound(math.inf, 400, 1e-5) == pytest.approx(lower_bound(known, included, 1e-5).epsilon)
    assert ideal_bound(0.0, 400, 1e-5) == 0


def test_two_records_of_which_one_is_in_are_at_most_twice_as_far_apart() -> None:
    """Half of what is found is a bound for one of them."""
    single, pair = ideal_bound(1.0, 20_000, 1e-9), ideal_bound(1.0, 20_000, 1e-9, neighbours="replace")
    assert single < pair < 1
