"""Composition by characteristic functions: plain convolution gives the same, and no cut makes epsilon smaller."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from fedfair.accounting import Release, epsilon, fourier
from fedfair.accounting.fourier import Loss, removal_and_addition
from fedfair.accounting.knots import mixtures
from tests.fedfair.accounting.oracle import direct, of_losses
from tests.for_each import for_each


def convolved(releases: list[Release], interval: float, way: int) -> Loss:
    """Loss of a few releases, one after the other."""
    total = Loss(0, np.ones(1), 0.0)
    for release in releases:
        own = removal_and_addition(*release, interval, 1e-16)[way]
        total = Loss(total.first + own.first, np.convolve(total.mass, own.mass), total.infinite + own.infinite)
    return total


def by_convolution(releases: list[Release], interval: float, delta: float, way: int) -> float:
    """Epsilon of a few releases: their losses convolved, and a search."""
    total = convolved(releases, interval, way)
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if of_losses(total, interval, middle) <= delta else (middle, high)
    return high


def reappearing(releases: list[Release], interval: float, delta: float, least: float, way: int) -> float:
    """Return what losses below the window, which reappear above it, add to delta at an epsilon of `least` or more."""
    tail = fourier._CUT * delta / len(releases)
    knots = [fourier.Knots(one, [removal_and_addition(one.rate, knot, interval, tail)[way] for knot in one.knots])
             for one in mixtures(dict.fromkeys(releases, 1), fourier.KNOT_RATIO)]
    window, total = fourier._window(knots, interval, delta), convolved(releases, interval, way)
    losses = interval * (total.first + np.arange(len(total.mass)))
    below = losses < interval * window.first
    return float(total.mass[below] @ np.exp(window.tilt * (losses[below] - least)))


@given(st.lists(st.floats(0, 1e308) | st.just(math.inf), min_size=1, max_size=40), st.floats(0, 1))
def test_decaying_sums_are_those_of_a_filter_to_the_bit(values: list[float], ratio: float) -> None:
    """Also of values that overflow, or are not finite from a place on; of others they are those of a plain loop."""
    found = fourier._decaying_sums(np.array(values), ratio)
    assert np.array_equal(found, lfilter([1.0], [1.0, -ratio], values), equal_nan=True)
    plain = list(accumulate(values, lambda before, value: value + ratio * before))
    assert not np.isfinite(plain).all() or found.tolist() == plain


@settings(deadline=None, max_examples=12)
@given(st.lists(st.builds(Release, st.floats(0.02, 1), st.floats(0.7, 4)), min_size=1, max_size=4, unique=True),
       st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_plain_convolution_gives_the_same(releases: list[Release], delta: float) -> None:
    """Never below; above by what is cut off of one release's losses and of all, and by what reappears."""
    mixed = mixtures(dict.fromkeys(releases, 1), fourier.KNOT_RATIO)
    interval = fourier._interval(mixed, len(releases))
    least = max(by_convolution(releases, interval, delta, way) for way in (0, 1))
    most = max(by_convolution(releases, interval, delta * (1 - 2 * fourier._CUT) - reappearing(
        releases, interval, delta, least, way), way) for way in (0, 1))
    assert least - 1e-9 <= fourier.compose(mixed, delta) <= most + 1e-3 * interval


@settings(deadline=None, max_examples=8)
@given(st.floats(0.005, 0.5), st.floats(0.7, 5), st.integers(1, 300), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_never_below_the_optimistic_estimate(rate: float, multiplier: float, steps: int, delta: float) -> None:
    releases = {Release(rate, multiplier): steps}
    assert epsilon(releases, delta) >= direct(releases, "pld", delta, pessimistic=False) - 1e-9


@for_each("delta", [0.1, 1e-2, 1e-6, 1e-12, 1e-20, 1e-40, 1e-80])
@for_each("steps", [1, 30, 3000])
def test_at_any_delta_the_epsilon_of_a_gaussian_is_that_of_its_closed_form(delta: float, steps: int) -> None:
    """Together n releases of multiplier s are one of s / sqrt(n), whose epsilon is known (Balle and Wang 2018)."""
    sigma = 1.5 * math.sqrt(steps)
    found = epsilon({Release(1.0, sigma): steps}, delta)
    assert delta_of(found, 1.5) <= delta * (1 + 1e-6)
    assert delta_of(found * 0.997 - 1e-4, 1.5) > delta


def delta_of(loss: float, multiplier: float) -> float:
    """Exact to the last digits in the far tail."""
    from scipy.special import log_ndtr

    mu = 1 / multiplier
    first, second = log_ndtr(mu / 2 - loss / mu), loss + log_ndtr(-mu / 2 - loss / mu)
    return math.exp(first) * -math.expm1(second - first)


def test_a_record_added_and_a_record_removed_are_both_looked_at() -> None:
    """The larger of the two directions counts, and for few steps at a large delta they differ."""
    mixed = mixtures({Release(0.3, 1.0): 2}, fourier.KNOT_RATIO)
    ways = [[fourier.Knots(mixed[0], [removal_and_addition(0.3, 1.0, 0.01, 1e-10)[way]])] for way in (0, 1)]
    found = [fourier._epsilon(way, 0.01, 1e-4) for way in ways]
    assert found[0] != pytest.approx(found[1], rel=0.05)
    assert fourier.compose(mixed, 1e-4) == pytest.approx(max(found), rel=1e-3)


def test_twenty_thousand_distinct_multipliers_cost_what_their_sum_of_gaussians_costs() -> None:
    """At rate 1 the composition is known: mu adds up in squares."""
    multipliers = np.geomspace(80, 400, 20_000)
    found = epsilon({Release(1.0, float(m)): 1 for m in multipliers}, 1e-6)
    whole = float(np.sum(multipliers**-2.0)) ** -0.5
    assert delta_of(found, whole) <= 1e-6
    assert delta_of(found * 0.998, whole) > 1e-6


def test_what_may_count_as_an_infinite_loss_is_charged_for_every_release() -> None:
    """Two releases, whose losses are infinite with a probability of a fifth of delta each."""
    loss = removal_and_addition(0.3, 1.0, 0.01, 1e-12)[0]._replace(infinite=2e-6)
    (mixture,) = mixtures({Release(0.3, 1.0): 2}, fourier.KNOT_RATIO)
    found = fourier._epsilon([fourier.Knots(mixture, [loss])], 0.01, 1e-5)
    both = Loss(2 * loss.first, np.convolve(loss.mass, loss.mass), 2 * loss.infinite)
    assert 0.99e-5 < of_losses(both, 0.01, found) <= 1e-5
