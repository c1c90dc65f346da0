"""Noise for prefix sums: the factorisation against the matrices, sensitivity by brute force, and its real size."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedfair.mechanisms.histograms import add_noise, largest_deviation, margin, sensitivity
from fedfair.mechanisms.noise import add_discrete_gaussian
from fedfair.mechanisms.randomness import generator
from tests.for_each import for_each


def square_root(n: int) -> torch.Tensor:
    """Return the lower triangular C with C C = the lower triangle of ones, solved for entry by entry."""
    c = torch.zeros(n, n, dtype=torch.float64)
    for distance in range(n):
        for row in range(distance, n):
            column = row - distance
            known = sum(float(c[row, k] * c[k, column]) for k in range(column + 1, row))
            c[row, column] = 1.0 if distance == 0 else (1 - known) / (c[row, row] + c[column, column])
    return c


@for_each("n", [1, 2, 7, 24])
def test_the_noise_is_that_of_the_square_root(n: int) -> None:
    c = square_root(n)
    assert torch.allclose(c @ c, torch.ones(n, n, dtype=torch.float64).tril(), atol=1e-12)
    counts = torch.arange(float(n), dtype=torch.float64)
    z = 3.0 * torch.randn(n, generator=generator(1, "noise"), dtype=torch.float64)
    noisy = add_noise("gaussian", counts, 3.0, generator(1, "noise"))
    assert torch.allclose(c @ noisy, c @ counts + z, atol=1e-10)
    assert sensitivity(n) == pytest.approx(float(c.norm(dim=0).max()))
    assert largest_deviation(n, 2.0) == pytest.approx(2.0 * sensitivity(n) * float(c.norm(dim=1).max()))


@settings(deadline=None)
@given(st.integers(0, 23))
def test_no_record_moves_the_release_by_more_than_the_sensitivity(cell: int) -> None:
    moved = float((square_root(24) @ torch.eye(24, dtype=torch.float64)[cell]).norm())
    assert moved <= sensitivity(24) * (1 + 1e-12)
    if cell == 0:
        assert moved > 0.99 * sensitivity(24)


def test_what_is_released_carries_the_noise_that_is_charged() -> None:
    """C times the noisy counts is the Gaussian release; its noise has the right scale, and not 2/3 or 3/2 of it."""
    noisy = add_noise("gaussian", torch.zeros(400, 24, dtype=torch.float64), 2.0 * sensitivity(24),
                      generator(0, "noise"))
    drawn = (noisy @ square_root(24).T / sensitivity(24) / 2.0).flatten().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn * wrong, "norm").pvalue < 1e-6


def test_prefix_sums_are_far_quieter_than_of_independent_noise_and_within_the_margin() -> None:
    zeros = torch.zeros(4000, 200, dtype=torch.float64)
    noise = add_noise("gaussian", zeros, sensitivity(200), generator(0, "noise")).cumsum(1)
    assert float(noise.std(0).max()) == pytest.approx(largest_deviation(200, 1.0), rel=0.05)
    assert largest_deviation(200, 1.0) < math.sqrt(200) / 5
    outside = (noise.abs().amax(1) > margin(200, 1.0, 200, 0.1)).double().mean()
    assert 0.005 < outside < 0.1


def test_without_deviation_nothing_is_drawn() -> None:
    counts, draws = torch.ones(2, 5, dtype=torch.float64), generator(0, "noise")
    before = draws.get_state()
    assert torch.equal(add_noise("gaussian", counts, 0.0, draws), counts)
    assert torch.equal(draws.get_state(), before)


def test_discrete_noise_is_added_where_the_sensitivity_is_known() -> None:
    """To C times the counts, on the grid; what follows is post-processing."""
    counts, deviation, c = torch.arange(24, dtype=torch.float64), 2.0 * sensitivity(24), square_root(24)
    released = add_noise("discrete", counts, deviation, generator(0, "noise"))
    expected = add_discrete_gaussian({"z": c @ counts}, deviation, generator(0, "noise"))["z"]
    assert torch.allclose(c @ released, expected, atol=1e-9)
