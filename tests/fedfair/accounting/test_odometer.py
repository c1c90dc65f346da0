"""Odometer and filter: bounds that hold although releases are chosen on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Release, RenyiFilter, epsilon
from fedfair.accounting.odometer import filter_for, reading
from tests.fedfair.accounting.oracle import direct

DELTA = 1e-2


def adversary(loss: float, left: int) -> float:
    """Take little noise when it is nearly through, and much when it is lucky already: chosen by earlier outputs."""
    return 0.8 if loss > 3 and left > 2 else 3.0


def test_an_adversary_who_chooses_noise_by_what_came_out_exceeds_the_reading_at_most_with_delta() -> None:
    """20,000 runs of Gaussians at rate 1, on the neighbour that has the record; at every step, not only the last."""
    rng = np.random.default_rng(0)
    exceeded = 0
    costs = {s: reading({Release(1.0, s): 1}, 1.0) for s in (0.8, 3.0)}
    assert costs[0.8] > costs[3.0]
    readings: dict[tuple[int, int], float] = {}
    for _ in range(20_000):
        loss, used, broke = 0.0, [0, 0], False
        for left in range(8, 0, -1):
            sigma = adversary(loss, left)
            used[sigma == 3.0] += 1
            loss += 1 / (2 * sigma**2) + rng.normal() / sigma
            key = (used[0], used[1])
            if key not in readings:
                readings[key] = reading({Release(1.0, 0.8): key[0], Release(1.0, 3.0): key[1]}, DELTA)
            broke = broke or loss > readings[key]
        exceeded += broke
    assert exceeded / 20_000 <= DELTA + 3 * math.sqrt(DELTA / 20_000)


@settings(deadline=None, max_examples=6)
@given(st.floats(0.01, 0.3), st.floats(0.8, 4), st.integers(1, 300))
def test_a_reading_is_a_little_above_the_epsilon_of_releases_fixed_in_advance(rate: float, sigma: float, steps: int
                                                                            ) -> None:
    releases = {Release(rate, sigma): steps}
    assert epsilon(releases, 1e-6, "rdp") < reading(releases, 1e-6) < 2.5 * epsilon(releases, 1e-6, "rdp") + 0.5


@pytest.mark.parametrize("sigma", [0.5, 3.0, 40.0])
def test_a_reading_pays_for_the_choice_of_its_order(sigma: float) -> None:
    """Of a Gaussian at rate 1 the divergence of order a is a / (2 sigma^2); the best of 11 orders is chosen."""
    orders = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    expected = min(5 * order / (2 * sigma**2) + math.log(len(orders) / DELTA) / (order - 1) for order in orders)
    assert reading({Release(1.0, sigma): 5}, DELTA) == pytest.approx(expected)


def test_readings_of_nothing_and_of_no_noise() -> None:
    assert reading({}, 1e-6) == reading({Release(0.0, 0.0): 3, Release(0.1, math.inf): 1}, 1e-6) == 0
    assert math.isinf(reading({Release(0.1, 0.0): 1, Release(0.1, 2.0): 1}, 1e-6))


@settings(deadline=None, max_examples=6)
@given(st.floats(0.3, 10), st.sampled_from([1e-4, 1e-6, 1e-9]), st.floats(0.001, 0.3), st.integers(1, 3000))
def test_a_filter_guarantees_its_epsilon_and_wants_hardly_more_noise_than_fixed_releases(
        target: float, delta: float, rate: float, steps: int) -> None:
    budget = filter_for(target, delta, rate, steps)
    assert budget.epsilon(delta) == pytest.approx(target, rel=1e-9)
    sigma = budget.least_multiplier(rate, budget.divergence / steps)
    assert budget.holds({Release(rate, sigma): steps})
    assert not budget.holds({Release(rate, sigma * 0.99): steps})
    assert direct({Release(rate, sigma): steps}, "rdp", delta) <= target * (1 + 1e-9)


def test_a_filter_charges_nothing_for_nothing_and_everything_for_no_noise() -> None:
    budget = RenyiFilter(4, 1.0)
    assert budget.cost(Release(0.0, 0.0)) == budget.cost(Release(0.1, math.inf)) == 0
    assert math.isinf(budget.cost(Release(0.1, 0.0)))
    assert math.isinf(budget.least_multiplier(0.1, -1.0))


def test_a_budget_too_small_for_any_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a budget of epsilon 0\.001 at delta 1e-09 is too small"):
        filter_for(0.001, 1e-9, 0.1, 10)
