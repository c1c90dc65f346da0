"""Axes: values inside, ticks round."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Range, Scale, round_ticks, spanned

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))


@given(numbers, st.floats(1e-3, 1e6))
def test_ticks_are_few_inside_and_evenly_spaced(low: float, width: float) -> None:
    ticks = round_ticks(low, low + width)
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * width <= tick <= low + width * (1 + 1e-6) for tick in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-3, abs_tol=1e-9) for step in steps)


@given(st.lists(numbers, min_size=1))
def test_every_value_lies_inside_its_axis(values: list[float]) -> None:
    extent = spanned([Estimate(value) for value in values], Scale("x"))
    assert all(extent.low <= value <= extent.high for value in values)
    shares = [extent.share(value) for value in sorted(values)]
    assert shares == sorted(shares)


def test_a_logarithmic_axis_has_decades_and_leaves_out_what_has_no_place_there() -> None:
    extent = spanned([Estimate(0.0), Estimate(1.0), Estimate(1000.0)], Scale("Z", log=True))
    assert extent.share(1000.0) > extent.share(10.0) > extent.share(1.0)
    assert {1.0, 10.0, 100.0, 1000.0} <= set(extent.ticks())
    assert set(Range(0.0, 0.9, log=True).ticks()) == {1.0, 2.0, 5.0}
