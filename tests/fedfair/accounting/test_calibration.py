"""The noise that a target epsilon needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Accountant, Release, calibrate, epsilon
from fedfair.accounting.events import joint_multiplier

DELTA = 1e-6
rates = st.floats(1e-3, 0.5)


def gradients_and_counts(rate: float, steps: int, counts: float | None = 10.0) -> Callable[[float], dict]:
    return lambda s: {Release(rate, joint_multiplier(s, None if counts is None else counts * s)): steps}


@given(rates, st.integers(1, 500), st.floats(0.2, 10), st.sampled_from([None, 2.0, 10.0]))
@settings(deadline=None, max_examples=4)
def test_calibration_is_enough_and_barely_enough(rate: float, steps: int, target: float, counts: float | None) -> None:
    releases = gradients_and_counts(rate, steps, counts)
    found = calibrate(releases, target, DELTA, "rdp")
    assert epsilon(releases(found), DELTA, "rdp") <= target
    assert found == 0.05 or epsilon(releases(found * 0.99), DELTA, "rdp") > target


@pytest.mark.parametrize(("rate", "steps", "target"), [(256 / 9177, 300, 2.66), (0.3, 20, 0.5)])
def test_calibration_by_pld_is_enough_and_barely_enough(rate: float, steps: int, target: float) -> None:
    """Hazard 3: the count queries are part of what is calibrated."""
    releases = gradients_and_counts(rate, steps)
    found = calibrate(releases, target, DELTA)
    assert epsilon(releases(found), DELTA) <= target
    assert epsilon(releases(found * 0.99), DELTA) > target
    assert found > calibrate(gradients_and_counts(rate, steps, None), target, DELTA)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_target_that_cannot_be_reached_is_refused(accountant: Accountant) -> None:
    with pytest.raises(ValueError, match=r"target_epsilon 0\.1 cannot be reached: .* more noise on the counts"):
        calibrate(lambda s: {Release(0.1, joint_multiplier(s, 0.5)): 10}, 0.1, DELTA, accountant)


def test_a_target_that_only_pld_reaches_is_reached() -> None:
    """Counts of fixed noise cost 0.430 by RDP, but 0.397 by PLD: 0.41 is within reach of the latter."""
    def releases(multiplier: float) -> dict[Release, int]:
        return {Release(1.0, joint_multiplier(multiplier, 10.0)): 1}

    assert epsilon(releases(1e5), DELTA, "rdp") > 0.41
    assert epsilon(releases(calibrate(releases, 0.41, DELTA, "pld")), DELTA) <= 0.41


def test_a_generous_target_takes_the_least_noise() -> None:
    assert calibrate(gradients_and_counts(0.01, 1), 1e6, DELTA) == pytest.approx(0.05)
