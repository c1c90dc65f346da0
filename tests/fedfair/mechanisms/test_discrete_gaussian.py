"""The discrete Gaussian has the probabilities that its formula says, on the fast path and on the exact one."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedfair.mechanisms import discrete_gaussian
from fedfair.mechanisms.discrete_gaussian import SCALE
from fedfair.mechanisms.randomness import Source, SystemEntropy, generator
from tests.for_each import for_each


def fits(drawn: np.ndarray, scale: int) -> bool:
    """Whether a chi-square test lets the draws pass for P(y) proportional to exp(-y^2 / (2 scale^2))."""
    reach = np.arange(-20 * scale, 20 * scale + 1)
    weights = np.exp(-(reach.astype(float) ** 2) / (2 * scale**2))
    expected = weights / weights.sum() * len(drawn)
    found = np.array([(drawn == y).sum() for y in reach])
    large = expected >= 5
    rest = expected[~large].sum()
    observed, wanted = found[large], expected[large]
    if rest > 1:
        observed, wanted = np.append(observed, found[~large].sum()), np.append(wanted, rest)
    return bool(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-3)


@pytest.mark.parametrize("source", [generator(0, "noise"), SystemEntropy()], ids=["seeded", "system"])
@pytest.mark.parametrize(("bits", "doubt", "count"), [(2, 2.0**-48, 50_000), (2, 2.0, 3000)],
                         ids=["fast", "exact"])
def test_small_scales_have_the_exact_probabilities(monkeypatch: pytest.MonkeyPatch, source: Source, bits: int,
                                                   doubt: float, count: int) -> None:
    """With doubt 2, every decision is taken by rational arithmetic."""
    monkeypatch.setattr(discrete_gaussian, "SCALE_BITS", bits)
    monkeypatch.setattr(discrete_gaussian, "SCALE", 1 << bits)
    monkeypatch.setattr(discrete_gaussian, "_DOUBT", doubt)
    drawn = discrete_gaussian.discrete_gaussian(count, source)
    assert len(drawn) == count
    assert fits(drawn, 1 << bits)
    assert not fits(np.where(drawn == 0, 1, drawn), 1 << bits)


def test_the_real_scale_is_normal_to_the_eye_of_a_test() -> None:
    drawn = discrete_gaussian.discrete_gaussian(100_000, generator(1, "noise")) / SCALE
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert stats.kstest(drawn * 1.02, "norm").pvalue < 1e-3
    assert stats.skew(drawn) == pytest.approx(0, abs=0.05)
    assert stats.kurtosis(drawn) == pytest.approx(0, abs=0.1)


def test_low_bits_are_uniform() -> None:
    """Nothing of the size of a draw shows in its last bits; rounding a floating-point normal would leave zeros."""
    low = discrete_gaussian.discrete_gaussian(40_000, generator(2, "noise")) & 15
    assert stats.chisquare(np.bincount(low, minlength=16)).pvalue > 1e-3


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**53 - 1), st.fractions(0, 60, max_denominator=10**6))
def test_the_exact_decision_is_the_obvious_one_where_that_is_clear(first: int, exponent: Fraction) -> None:
    u, p = first / 2**53, math.exp(-float(exponent))
    if abs(u - p) > 1e-12:
        assert discrete_gaussian._is_below(Fraction(first, 2**53), exponent, SystemEntropy()) == (u < p)


def test_the_exact_decision_goes_on_where_53_bits_do_not_decide() -> None:
    """The first 53 bits of exp(-1): further ones decide, and do so in either way, as often as they should."""
    exact = Fraction(Decimal("0.36787944117144232159552377016146086744581113103176783450783680"))
    first = Fraction(int(exact * 2**53), 2**53)
    share = float((exact - first) * 2**53)
    below = [discrete_gaussian._is_below(first, Fraction(1), SystemEntropy()) for _ in range(2000)]
    assert stats.binomtest(sum(below), 2000, share).pvalue > 1e-4


@for_each("apart", [-20, 0, 20])
@for_each("exact", [True, False])
def test_what_floating_point_cannot_decide_is_decided_exactly(monkeypatch: pytest.MonkeyPatch, apart: int, exact: bool
                                                              ) -> None:
    """A uniform number some 2^-53 from exp(-1), where rounding errors could turn the decision."""
    bits = np.uint64((int(math.exp(-1) * 2**53) + apart) << 11)
    monkeypatch.setattr(discrete_gaussian, "random_bits", lambda source, count: np.full(count, bits))
    monkeypatch.setattr(discrete_gaussian, "_is_below", lambda first, exponent, source: exact)
    assert bool(discrete_gaussian._bernoulli_exp(np.ones(1), 1, SystemEntropy())[0]) is exact
