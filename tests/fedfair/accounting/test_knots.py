"""A release between two noise multipliers is dominated by a mixture of them, as the lemma says, and closely."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Release, fourier, knots, renyi
from fedfair.accounting.knots import mixtures
from tests.fedfair.accounting.oracle import hockey_stick

rates = st.one_of(st.just(1.0), st.floats(1e-4, 1))


@settings(deadline=None, max_examples=200)
@given(rates, st.floats(0.3, 20), st.floats(1.001, 1.5), st.floats(0, 1), st.floats(-3, 6), st.booleans())
def test_the_mixture_dominates_at_every_privacy_loss(rate: float, less: float, ratio: float, between: float,
                                                     loss: float, removal: bool) -> None:
    more = less * ratio
    multiplier = less * ratio**between
    variation = [math.erf(1 / (math.sqrt(8) * s)) for s in (less, multiplier, more)]
    weight = (variation[1] - variation[2]) / (variation[0] - variation[2])
    exact, low, high = (hockey_stick(rate, s, loss, removal) for s in (multiplier, less, more))
    assert exact <= weight * low + (1 - weight) * high + 1e-13


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 30), st.floats(1.1, 10))
def test_weights_and_knots_enclose_every_release(least: float, ratio: float) -> None:
    multipliers = np.geomspace(least, least * ratio, 60)
    (mixture,) = mixtures({Release(0.1, float(m)): 1 for m in multipliers}, 1.02)
    assert np.all(mixture.knots[mixture.lower] <= multipliers * (1 + 1e-12))
    assert np.all(mixture.knots[mixture.upper] >= multipliers * (1 - 1e-12))
    assert np.allclose(mixture.knots[mixture.upper] / mixture.knots[mixture.lower], 1.02)
    assert np.all((mixture.weight >= 0) & (mixture.weight <= 1))


def test_every_rate_has_its_own_mixture_and_no_release_is_lost() -> None:
    releases = {Release(rate, 1 + i / 50): 1 + i % 3 for rate in (0.01, 0.2, 1.0) for i in range(50)}
    found = mixtures(releases, 1.02)
    assert [mixture.rate for mixture in found] == [0.01, 0.2, 1.0]
    assert sum(mixture.times.sum() for mixture in found) == sum(releases.values())


@pytest.mark.parametrize(("accountant", "rate", "low", "high", "times"), [
    (fourier, 0.005, 1, 2, 20), (fourier, 0.01, 0.5, 1, 5), (fourier, 0.2, 3, 6, 5), (fourier, 1.0, 10, 30, 2),
    (fourier, 0.3, 0.4, 0.6, 1), (renyi, 0.01, 1, 2, 20), (renyi, 1.0, 10, 30, 2)])
def test_few_knots_cost_no_less_and_at_most_half_a_percent_more_than_all(
        monkeypatch: pytest.MonkeyPatch, accountant: ModuleType, rate: float, low: float, high: float, times: int
) -> None:
    """All error that many distinct multipliers bring: the same accountants with a knot for every release."""
    releases = {Release(rate, float(m)): times for m in np.geomspace(low, high, 60)}
    few = mixtures(releases, accountant.KNOT_RATIO)
    monkeypatch.setattr(knots, "_FEW", 100)
    every = mixtures(releases, accountant.KNOT_RATIO)
    assert len(every[0].knots) == 60 != len(few[0].knots)
    exact = accountant.compose(every, 1e-6)
    assert exact * (1 - 1e-4) <= accountant.compose(few, 1e-6) <= exact * 1.003


def test_a_mixture_has_the_total_variation_of_the_release_that_it_stands_for() -> None:
    """The parameter in which the lemma draws its chord: another one would not be known to dominate."""
    multipliers = np.geomspace(0.5, 5, 60)
    (mixture,) = mixtures({Release(0.1, float(m)): 1 for m in multipliers}, 1.5)
    variation = np.array([math.erf(1 / (math.sqrt(8) * knot)) for knot in mixture.knots])
    expected = [math.erf(1 / (math.sqrt(8) * m)) for m in multipliers]
    assert mixture.mixed(variation) == pytest.approx(expected, rel=1e-12)
