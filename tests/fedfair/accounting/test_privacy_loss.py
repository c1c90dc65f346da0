"""The discretised loss of one release: never below the closed form, in either direction, and close to it."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.accounting.fourier import removal_and_addition
from tests.fedfair.accounting.oracle import hockey_stick, of_losses
from tests.for_each import for_each


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.just(1.0), st.floats(1e-4, 1), st.floats(0.999999, 1)), st.floats(0.2, 20), st.floats(0, 1),
       st.floats(1e-3, 0.2))
@example(0.005, 1.0, 0.1, 0.04)
@example(1.0, 0.203125, 0.75, 0.015625)
@example(0.9999999999999999, 0.21875, 0.00390625, 0.125)
def test_the_discretised_loss_dominates_the_release(rate: float, multiplier: float, place: float, fineness: float
                                                    ) -> None:
    interval = fineness * min(1 / multiplier, 1.0)
    for removal, loss in zip((True, False), removal_and_addition(rate, multiplier, interval, 1e-12), strict=True):
        at = interval * (loss.first + place * len(loss.mass))
        assert of_losses(loss, interval, at) >= hockey_stick(rate, multiplier, at, removal) * (1 - 1e-6) - 2e-14


@for_each(("rate", "multiplier"), [(1.0, 1.0), (0.01, 1.0), (0.3, 2.0), (0.005, 0.6)])
def test_the_discretised_loss_is_close_to_the_release(rate: float, multiplier: float) -> None:
    """Second order: a grid ten times finer is a hundred times closer."""
    for way, removal in enumerate((True, False)):
        gaps = []
        for interval in (0.1 * rate / multiplier, 0.01 * rate / multiplier):
            at = interval * (math.floor(0.3 * rate / interval) + 0.5)
            loss = removal_and_addition(rate, multiplier, interval, 1e-13)[way]
            gaps.append(of_losses(loss, interval, at) / hockey_stick(rate, multiplier, at, removal) - 1)
        assert -1e-12 < gaps[0] < 0.01
        assert gaps[1] < gaps[0] / 50 + 1e-11


@for_each("tail", [1e-10, 1e-3])
@for_each("rate", [1.0, 0.02])
def test_all_probability_is_there_under_both_neighbours(rate: float, tail: float) -> None:
    for loss in removal_and_addition(rate, 1.3, 0.001, tail):
        assert loss.mass.sum() + loss.infinite == pytest.approx(1, abs=1e-12)
        assert loss.mass.min() >= 0
        assert 0 <= loss.infinite <= 1.0001 * tail
