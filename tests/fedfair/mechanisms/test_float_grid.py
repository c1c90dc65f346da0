"""The public grid of numbers: every number is in its cell, and cells are in order."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.mechanisms.histograms import CELLS, cells, ends

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.floats(-(2.0**40) * 0.999, 2.0**40 * 0.999))
def test_a_number_is_between_the_ends_of_its_cell(number: float) -> None:
    low, high = ends(int(cells(torch.tensor([number], dtype=torch.float64))))
    assert low <= number <= high
    assert high - low <= max(abs(number) / 16, 2.0**-9) * (1 + 1e-12)


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_cells_are_in_the_order_of_numbers(numbers: list[float]) -> None:
    placed = cells(torch.tensor(sorted(numbers), dtype=torch.float64)).tolist()
    assert placed == sorted(placed)
    assert all(0 <= cell < CELLS for cell in placed)


def test_cells_follow_each_other() -> None:
    assert all(math.isclose(ends(cell)[1], ends(cell + 1)[0]) for cell in range(CELLS - 1))
