"""Intervals compared with slow, obvious ones."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from simulations.statistics.over_seeds import of_records, over_seeds, share_over_seeds


def test_students_interval_is_the_textbooks() -> None:
    values = [0.71, 0.75, 0.69, 0.74, 0.72]
    half = 2.7764451 * statistics.stdev(values) / math.sqrt(5)  # t(0.975, 4 degrees of freedom), from a printed table
    mean, low, high = over_seeds(values)
    assert (mean, low, high) == pytest.approx((0.722, 0.722 - half, 0.722 + half))


def test_one_seed_and_no_number_have_no_interval_and_shares_stay_between_0_and_1() -> None:
    assert over_seeds([0.5, math.nan]).value == 0.5
    assert math.isnan(over_seeds([0.5]).low)
    assert math.isnan(over_seeds([]).value)
    assert share_over_seeds([0.99, 0.2]) == (pytest.approx(0.595), 0.0, 1.0)


def test_wilsons_interval_holds_a_share_of_none_or_all() -> None:
    for share, records in itertools.product((0.0, 1.0), range(1, 200)):
        _, low, high = of_records(share, records)
        assert low <= share <= high


@given(st.integers(1, 500), st.data())
def test_wilsons_interval_is_scipys(records: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, records))
    expected = binomtest(right, records).proportion_ci(0.95, "wilson")
    _, low, high = of_records(right / records, records)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
