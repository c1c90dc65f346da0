"""Joint events of gradients and counts, and the noise that is left when clients drop out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Event, Release, epsilon, noise_present, spent_multipliers
from fedfair.accounting.events import joint_multiplier
from fedfair.accounting.odometer import reading
from tests.for_each import for_each

DELTA = 1e-6
multipliers = st.floats(0.6, 8)


@given(multipliers, multipliers)
@settings(deadline=None, max_examples=30)
def test_the_joint_multiplier(gradient: float, counts: float) -> None:
    found = joint_multiplier(gradient, counts)
    assert found == pytest.approx(1 / math.sqrt(1 / gradient**2 + 1 / counts**2))
    assert found < min(gradient, counts)
    assert found == joint_multiplier(counts, gradient)


def test_the_joint_multiplier_at_its_ends() -> None:
    assert joint_multiplier(1.3, None) == 1.3
    assert joint_multiplier(0.0, 5.0) == joint_multiplier(5.0, 0.0) == 0.0
    assert joint_multiplier(2.0, math.inf) == 2.0


def test_a_batch_released_at_full_rate_composes_as_two_gaussians() -> None:
    """Without sampling, the joint event and two separate events are the same thing."""
    joint = {Release(1.0, joint_multiplier(8.0, 20.0)): 50}
    assert epsilon(joint, DELTA, "rdp") == pytest.approx(
        epsilon({Release(1.0, 8.0): 50, Release(1.0, 20.0): 50}, DELTA, "rdp"), rel=1e-9)


def test_an_event_charges_counts_jointly_and_each_group_by_its_own_bound() -> None:
    event = Event((0.1, 0.2), (1.0, 1.0), (1.0, 4.0), 3.0)
    assert event.guaranteed(1) == Release(0.2, joint_multiplier(1.0, 3.0))
    assert event.spent(1) == Release(0.2, joint_multiplier(4.0, 3.0))
    assert event.separate(1) == (Release(0.2, 1.0), Release(0.2, 3.0))
    assert Event((0.1,), (1.0,), (2.0,)).separate(0) == (Release(0.1, 1.0),)


@given(st.integers(1, 50), st.data())
@settings(deadline=None, max_examples=50)
def test_missing_shares_leave_the_root_of_the_part_that_is_there(clients: int, data: st.DataObject) -> None:
    """Hazard 13: n - d shares of variance 1/n each."""
    missing = data.draw(st.integers(0, clients))
    left = sum([1 / clients] * (clients - missing))
    assert noise_present(clients, missing) == pytest.approx(math.sqrt(left))
    event = Event((0.1,), (2.0,), (3.0,), 5.0, noise_present=noise_present(clients, missing))
    assert event.guaranteed(0).multiplier == pytest.approx(joint_multiplier(2.0, 5.0) * math.sqrt(left))
    assert event.spent(0).multiplier == pytest.approx(joint_multiplier(3.0, 5.0) * math.sqrt(left))
    assert event.separate(0)[1].multiplier == pytest.approx(5.0 * math.sqrt(left))


@pytest.mark.parametrize(("clients", "missing"), [(3, 4), (3, -1)])
def test_more_missing_than_there_are_is_refused(clients: int, missing: int) -> None:
    with pytest.raises(ValueError, match=f"{missing} of 3 clients are missing: take a number from 0 to 3"):
        noise_present(clients, missing)


def test_what_was_certain_before_a_step_has_the_noise_that_was_really_there() -> None:
    event = Event((0.1,), (2.0,), (3.0,), 5.0, noise_present=0.5, certain_multipliers=(2.5,))
    assert event.certain(0) == Release(0.1, 0.5 * joint_multiplier(2.5, 5.0))
    known = Event((0.1,), (2.0,), (3.0,), 5.0, noise_present=0.5)
    assert known.certain(0) == known.spent(0)
    assert event.in_advance() == Event((0.1,), (2.0,), (2.0,), 5.0, noise_present=0.5)


def test_no_noise_stays_none_whatever_the_bounds() -> None:
    """Not 0 times infinity over infinity: a number that is none would be charged nothing."""
    assert spent_multipliers(0.0, (math.inf, math.inf)) == (0.0, 0.0)
    assert spent_multipliers(0.0, (1.0, 2.0)) == (0.0, 0.0)
    assert spent_multipliers(1.5, (1.0, 2.0)) == (3.0, 1.5)


@for_each("release", [Release(0.1, math.nan), Release(0.1, -1.0), Release(math.nan, 1.0), Release(1.5, 1.0)])
def test_what_no_release_can_be_is_refused_and_not_charged_nothing(release: Release) -> None:
    rate, multiplier = release
    charges: tuple[Callable[[], object], ...] = (
        lambda: epsilon({release: 10}, 1e-5), lambda: epsilon({release: 10}, 1e-5, "rdp"),
        lambda: reading({release: 10}, 1e-5), lambda: Event((rate,), (multiplier,), (1.0,)),
        lambda: Event((rate,), (1.0,), (multiplier,)), lambda: Event((rate,), (1.0,), (1.0,), multiplier),
        lambda: Event((rate,), (1.0,), (1.0,), certain_multipliers=(multiplier,)))
    for charge in charges:
        with pytest.raises(ValueError, match=r"a release has the sampling rate .* and the noise multiplier"):
            charge()


def test_noise_around_a_sum_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="noise hides nothing in a sum without bounds"):
        spent_multipliers(1.0, (math.inf, 1.0))
