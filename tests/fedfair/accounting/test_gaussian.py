"""The closed form for Gaussian releases of all records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from mpmath import erfc, exp, mp, mpf, sqrt

from fedfair.accounting import Release, epsilon
from fedfair.accounting.composition import gaussian_epsilon
from tests.for_each import for_each

mp.dps = 60


def delta_of(bound: float, mu: float) -> float:
    """Return delta at an epsilon, with 60 digits."""
    def normal(x: mpf) -> mpf:
        """Return the normal distribution."""
        return erfc(-x / sqrt(2)) / 2

    e, m = mpf(bound), mpf(mu)
    return normal(m / 2 - e / m) - exp(e) * normal(-m / 2 - e / m)


@given(st.floats(1e-3, 20), st.floats(-14, -0.1))
def test_it_is_never_below_the_exact_epsilon_and_hardly_above(mu: float, log_delta: float) -> None:
    delta = 10**log_delta
    found = gaussian_epsilon(mu, delta)
    assert delta_of(found, mu) <= delta
    assert found == 0 or delta_of(found * (1 - 1e-7), mu) >= delta * (1 - 1e-9)


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 20.0])
def test_dp_accounting_says_the_same(multiplier: float) -> None:
    theirs = PLDAccountant(value_discretization_interval=1e-4).compose(GaussianDpEvent(multiplier), 3).get_epsilon(1e-6)
    assert epsilon({Release(1.0, multiplier): 3}, 1e-6) == pytest.approx(theirs, rel=1e-3)
    assert epsilon({Release(1.0, multiplier): 3}, 1e-6) == pytest.approx(
        epsilon({Release(1.0, multiplier / math.sqrt(3)): 1}, 1e-6), rel=1e-12)


@for_each("mu", [0.0, -1.0, 21.0, math.nan])
def test_what_rounding_would_spoil_is_refused(mu: float) -> None:
    with pytest.raises(ValueError, match="mu is"):
        gaussian_epsilon(mu, 1e-6)


def exceeds(p: Sequence[float], q: Sequence[float], bound: float) -> float:
    """Return the least delta with which P <= e^bound Q + delta, and Q <= e^bound P + delta, for distributions."""
    return max(sum(max(0.0, a - math.exp(bound) * b) for a, b in zip(one, other, strict=True))
               for one, other in ((p, q), (q, p)))


DISTRIBUTIONS = st.lists(st.floats(1e-6, 1), min_size=3, max_size=3).map(lambda w: [x / math.fsum(w) for x in w])


@given(*[DISTRIBUTIONS] * 4, st.floats(0, 2), st.floats(0, 2))
def test_who_moves_between_groups_loses_the_sum_of_both_figures(
        in_a: list[float], in_b: list[float], neither: list[float], both: list[float], of_a: float, of_b: float
) -> None:
    """As docs/auditing.md says: whatever is released, with the record in a, in b, in neither or in both of them."""
    delta = max(exceeds(in_a, neither, of_a), exceeds(in_b, both, of_a), exceeds(in_b, neither, of_b),
                exceeds(in_a, both, of_b))
    assert exceeds(in_a, in_b, of_a + of_b) <= (1 + math.exp(min(of_a, of_b))) * delta + 1e-12


def test_who_moves_between_groups_loses_more_than_the_larger_figure() -> None:
    """Of a Gaussian release that both groups move in opposite directions."""
    one, moved = gaussian_epsilon(1.0, 1e-5), gaussian_epsilon(2.0, 1e-5)
    assert 1.5 * one < moved
    assert gaussian_epsilon(2.0, (1 + math.exp(one)) * 1e-5) <= 2 * one
