"""Bins by noisy prefix sums: against plain quantiles without noise, and inside of the data with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.mechanisms.histograms import (
    CELLS,
    add_noise,
    bin_ends,
    cells,
    largest_deviation,
    rising_counts,
    sensitivity,
)
from fedfair.mechanisms.randomness import generator
from tests.for_each import for_each


def below(numbers: np.ndarray, multiplier: float = 0.0, seed: int = 0) -> torch.Tensor:
    """Return noisy prefix sums of numbers, with noise of a multiplier."""
    counts = torch.bincount(cells(torch.from_numpy(numbers.astype(float))), minlength=CELLS).double()
    return add_noise("gaussian", counts, multiplier * sensitivity(CELLS), generator(seed, "bins")).cumsum(0)


@settings(deadline=None)
@example([0, -11, -12, -1.0], 4)  # the end of a cell of negative numbers is in it
@given(st.lists(st.one_of(st.integers(-100, 100), st.floats(-1e6, 1e6)), min_size=1, max_size=60), st.integers(2, 12))
def test_ends_rise_and_divide_numbers_as_their_cells_do(numbers: list[float], bins: int) -> None:
    """Every bin holds a number, and numbers of one cell are in one bin."""
    found, sorted_numbers = bin_ends(below(np.array(numbers)), bins, 0.0), sorted(float(number) for number in numbers)
    assert list(found) == sorted(set(found))
    assert len(found) <= 3 * bins
    held = np.searchsorted(found, sorted_numbers, side="right").tolist()
    assert {*held} == {*range(len(found) + 1)}
    by_cell = {*zip(cells(torch.tensor(sorted_numbers, dtype=torch.float64)).tolist(), held, strict=True)}
    assert len(by_cell) == len({cell for cell, _ in by_cell})


def test_without_noise_bins_hold_about_equal_shares() -> None:
    numbers = np.random.default_rng(0).normal(50, 10, 20_000)
    found = bin_ends(below(numbers), 10, 0.0)
    shares = np.diff([0.0, *(float((numbers < end).mean()) for end in found), 1.0])
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.01)


@for_each(("values", "ends"), [
    ([0] * 50 + [1] * 50, (1.0,)), ([0] * 95 + [1] * 5, (1.0,)), ([7] * 40, ()),
    ([40] * 90 + [*range(1, 40)] + [*range(41, 80)], (27.0, 40.0, 41.0, 54.0))])
def test_a_value_that_is_heavy_has_a_bin_of_its_own(values: list[int], ends: tuple[float, ...]) -> None:
    assert bin_ends(below(np.array(values)), 4, 0.0) == ends


def test_years_are_divided_by_four_years_or_less() -> None:
    years = np.random.default_rng(1).integers(1940, 2010, 5_000)
    found = bin_ends(below(years), 10, 0.0)
    assert len(found) >= 9
    assert all(1940 < end < 2010 for end in found)


@pytest.mark.parametrize("records", [2_400, 30_000])
def test_with_noise_no_end_is_outside_of_the_data_and_no_bin_is_empty(records: int) -> None:
    """By running maxima of the same sums 39 of 100 ends were outside, of 2,400 records."""
    numbers, multiplier = np.random.default_rng(2).gamma(2.0, 15.0, records), 20.0
    noise = largest_deviation(CELLS, multiplier)
    ends = []
    for seed in range(40):
        ends += bin_ends(below(numbers, multiplier, seed), 6, noise)
    outside = np.mean([end <= numbers.min() or end > numbers.max() for end in ends])
    assert len(ends) > 40
    assert outside < 0.03


def test_the_rising_sums_are_the_nearest_ones() -> None:
    """Against the textbook's algorithm, which pools neighbours that fall."""
    noisy = below(np.arange(30), 0.0) + torch.randn(CELLS, generator=generator(3, "bins"), dtype=torch.float64)
    blocks: list[tuple[float, int]] = []
    for value in noisy.tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (last, many), (before, more) = blocks.pop(), blocks.pop()
            blocks.append(((last * many + before * more) / (many + more), many + more))
    plain = np.maximum(np.concatenate([np.full(many, value) for value, many in blocks]), 0.0)
    assert rising_counts(noisy).cumsum() == pytest.approx(plain, abs=1e-9)
