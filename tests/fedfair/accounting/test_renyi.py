"""Renyi divergences against closed forms, direct integration, and the accountants of Google and Opacus."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS, compute_epsilon
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from fedfair.accounting import Release, renyi
from fedfair.accounting.fourier import loss_at
from fedfair.accounting.renyi import ORDERS, divergences
from tests.fedfair.accounting.oracle import google_divergences
from tests.for_each import for_each

WHOLE = np.floor(ORDERS) == ORDERS


def integrated(rate: float, multiplier: float, order: float) -> float:
    """E(r^a - 1 - a (r - 1)) / (a - 1) before the logarithm, by adaptive quadrature."""
    def integrand(x: float) -> float:
        loss = float(loss_at(np.array(x), rate, multiplier))
        density = math.exp(-((x / multiplier) ** 2) / 2) / math.sqrt(2 * math.pi) / multiplier
        return density * (math.expm1(order * loss) - order * math.expm1(loss))
    ends = (-12 * multiplier, order + 12 * multiplier)
    points = np.linspace(*ends, 40)
    parts = [quad(integrand, *pair, epsabs=0, epsrel=1e-11)[0] for pair in itertools.pairwise(points)]
    return math.log1p(math.fsum(parts)) / (order - 1)


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-5, 0.999), st.floats(0.5, 20), st.sampled_from([1.1, 1.5, 1.7, 2.0, 2.3, 3.0, 7.9]))
def test_they_are_the_integral_that_defines_them(rate: float, multiplier: float, order: float) -> None:
    assert divergences(Release(rate, multiplier), (order,))[0] == pytest.approx(
        integrated(rate, multiplier, order), rel=1e-8)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-4, 1), st.floats(0.06, 30))
def test_at_whole_orders_others_agree_and_between_them_they_are_not_below(rate: float, multiplier: float) -> None:
    """Google's fractional orders are upper bounds, some of them loose, and some are left out as infinite."""
    ours, theirs = divergences(Release(rate, multiplier)), google_divergences(rate, multiplier)
    precise = WHOLE & (theirs > 1e-8)
    assert ours[precise] == pytest.approx(theirs[precise], rel=1e-5)
    assert np.all(ours <= theirs * (1 + 1e-5) + 1e-13)


def test_a_chord_is_never_below_and_exact_at_whole_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = divergences(Release(0.1, 0.05))
    monkeypatch.setattr(renyi, "_TINY", 0.06)
    chord = divergences.__wrapped__(Release(0.1, 0.05))
    assert np.all(chord >= exact * (1 - 1e-12))
    assert chord[WHOLE] == pytest.approx(exact[WHOLE], rel=1e-12)
    assert np.all(chord[~WHOLE] > exact[~WHOLE] * 1.00001)


@for_each(("rate", "multiplier"), [(0.01, 1.0), (0.05, 2.0), (0.2, 1.0), (1.0, 3.0)])
def test_opacus_agrees_at_every_order(rate: float, multiplier: float) -> None:
    from opacus.accountants.analysis.rdp import compute_rdp

    theirs = compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=list(ORDERS[10:]))
    assert divergences(Release(rate, multiplier), tuple(ORDERS[10:])) == pytest.approx(theirs, rel=2e-3)


@for_each(("rate", "order"), [(1e-6, 61), (1e-6, 62), (1e-6, 63), (1e-5, 51), (1e-5, 52)])
def test_rare_records_at_large_orders_are_the_binomial_sum(rate: float, order: int) -> None:
    terms = []
    for k in range(2, order + 1):
        weight = math.log(math.comb(order, k)) + k * math.log(rate) + (order - k) * math.log1p(-rate)
        power = (k * k - k) / (2 * 1.5**2)
        terms.append(math.exp(weight) * math.expm1(power) if power < 1 else
                     math.exp(weight + power) - math.exp(weight))
    expected = math.log1p(math.fsum(terms)) / (order - 1)
    assert divergences(Release(rate, 1.5), (float(order),))[0] == pytest.approx(expected, rel=1e-9, abs=0)


def test_orders_are_those_of_dp_accounting() -> None:
    assert np.array_equal(ORDERS, DEFAULT_RDP_ORDERS)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.floats(1.1, 1024), st.floats(0, 1e4) | st.floats(0, 1e-3)), min_size=1, max_size=20),
       st.floats(1e-12, 0.999))
@example([(2.0, 0.0)], 1e-6)
@example([(2.0, math.inf), (3.0, 1.0)], 1e-6)
@example([(8.0, 0.3)], 0.6)  # enough delta for any epsilon
def test_the_conversion_is_that_of_dp_accounting(pairs: list[tuple[float, float]], delta: float) -> None:
    orders, together = np.array(pairs).T
    assert renyi.to_epsilon(orders, together, delta) == compute_epsilon(orders, together, delta)[0]


def test_a_divergence_that_is_no_number_is_no_epsilon_of_0() -> None:
    assert math.isnan(renyi.to_epsilon(np.array([2.0, 3.0]), np.array([1.0, math.nan]), 1e-6))


def test_a_full_batch_is_a_gaussian() -> None:
    assert divergences(Release(1.0, 2.0)) == pytest.approx(ORDERS / 8)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-6, 1), st.floats(0.06, 1e4))
@example(1e-6, 1.5)  # powers of the density ratio overflow where its weights have not vanished
def test_they_are_positive_finite_and_grow_with_the_order(rate: float, multiplier: float) -> None:
    found = divergences(Release(rate, multiplier))
    assert np.all(np.isfinite(found) & (found > 0))
    assert np.all(np.diff(found) >= -1e-9 * found[1:])


@given(st.sampled_from([2, 8, 63, 256]), st.floats(0.5, 50), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_a_divergence_and_its_epsilon_belong_together(order: int, epsilon: float, delta: float) -> None:
    divergence = renyi.to_divergence(order, epsilon, delta)
    if divergence > 1e-5:  # below, total variation alone gives an epsilon of 0 at the largest delta
        there = renyi.to_epsilon(np.array([float(order)]), np.array([divergence]), delta)
        assert there == pytest.approx(epsilon, rel=1e-9)
