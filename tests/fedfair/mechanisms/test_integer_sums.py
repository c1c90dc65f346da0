"""Sums in whole steps: what rounding changes, what a sum of discrete Gaussians is, and which sums have room."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedfair.mechanisms.discrete_gaussian import SCALE, discrete_gaussian
from fedfair.mechanisms.integer_sums import from_steps, noisy_steps, refuse_misfit
from fedfair.mechanisms.noise import add_discrete_gaussian, grid_step
from fedfair.mechanisms.randomness import stream
from tests.for_each import for_each


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.floats(0.01, 100), st.integers(0, 10**6))
def test_one_record_changes_whole_steps_by_no_more_than_the_proof_says(values: list[float], deviation: float, seed: int
                                                                       ) -> None:
    """D / g + sqrt(d), in exact integers; a record of length 1 in any direction."""
    first = torch.tensor(values, dtype=torch.float64)
    record = torch.randn(len(values), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    second = first + record / record.norm()
    moved = float((second - first).norm())
    steps = [noisy_steps({"a": data}, deviation, []) for data in (first, second)]
    changed = math.sqrt(sum(int(b - a)**2 for a, b in zip(*steps, strict=True)))
    assert changed <= (moved / grid_step(deviation) + math.sqrt(len(values))) * (1 + 1e-9)


def test_the_worst_case_of_rounding_is_reached() -> None:
    """Every number moves from just below to just above the middle between two steps."""
    step = grid_step(0.5)
    low, high = (torch.full((9,), (10 + 0.5 + side) * step, dtype=torch.float64) for side in (-1e-4, 1e-4))
    changed = noisy_steps({"a": high}, 0.5, []) - noisy_steps({"a": low}, 0.5, [])
    assert float(np.linalg.norm(changed)) == 3


def test_steps_are_those_of_discrete_noise_and_add_up_over_nodes() -> None:
    sums = [{"a": torch.randn(2, 3, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)} for _ in range(3)]
    steps = [noisy_steps(part, 0.7, [stream(node, "noise")]) for node, part in enumerate(sums)]
    plain = [add_discrete_gaussian(part, 0.7, stream(node, "noise")) for node, part in enumerate(sums)]
    for part, noisy in zip(steps, plain, strict=True):
        assert all(torch.equal(value, noisy[name]) for name, value in from_steps(part, 0.7, sums[0]).items())
    together = from_steps(np.sum(steps, axis=0), 0.7, sums[0])
    assert {name: tuple(value.shape) for name, value in together.items()} == {"a": (2, 3), "b": (4,)}
    for name, value in together.items():
        assert torch.allclose(value, torch.stack([noisy[name] for noisy in plain]).sum(0), rtol=0, atol=1e-12)


def test_shares_of_several_clients_add_up_to_the_whole_noise() -> None:
    zeros = {"a": torch.zeros(20_000, dtype=torch.float64)}
    share = 3.0 / math.sqrt(5)
    steps = noisy_steps(zeros, share, [stream(client, "noise") for client in range(5)])
    drawn = from_steps(steps, share, zeros)["a"].numpy() / 3.0
    assert [stats.kstest(drawn * factor, "norm").pvalue > 1e-4 for factor in (1, 0.9, 1.1)] == [True, False, False]


def masses(scale: float, reach: int = 60) -> np.ndarray:
    """Return the probabilities of a discrete Gaussian from -reach to reach."""
    weights = np.exp(-np.arange(-reach, reach + 1.0)**2 / (2 * scale**2))
    return np.asarray(weights / weights.sum())


@for_each("scale", [0.5, 0.6, 0.7])
@for_each("shares", [2, 3, 5])
def test_a_sum_of_discrete_gaussians_is_one_but_for_what_the_theorem_says(scale: float, shares: int) -> None:
    """Kairouz, Liu and Steinke 2021: the log ratio of probabilities is at most t; here at coarse steps, where it shows.

    With the steps of the program t is 0 in any floating point.
    """
    added = masses(scale)
    for _ in range(shares - 1):
        added = np.convolve(added, masses(scale), mode="same")
    one = masses(scale * math.sqrt(shares))
    middle = slice(60 - 8, 60 + 9)
    ratio = np.abs(np.log(added[middle] / one[middle])).max()
    bound = bound_of(scale, shares)
    assert 1e-4 < ratio <= bound
    assert bound_of(SCALE, shares) == 0


def bound_of(scale: float, shares: int) -> float:
    """Return t = 10 sum_{k < n} exp(-2 pi^2 r^2 k / (k + 1))."""
    return 10 * sum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, shares))


def fits(deviation: float = 1.0, sensitivity: float = 1.0, numbers: int = 1000, units: int = 1000, most: int = 1000,
         shares: int = 4) -> str:
    """Return why sums are refused, or ""."""
    try:
        refuse_misfit(deviation, sensitivity, numbers, units, most, shares)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("numbers", "most", "sigma"), [(1000, 1000, 3.0), (10**8, 10**4, 10.0), (5 * 10**4, 10**6, 4)])
def test_what_is_not_refused_carries_the_multiplier_that_is_charged(numbers: int, most: int, sigma: float) -> None:
    """From the proof, and not from the code: all noise over the most that a record changes, both in steps."""
    shares, record = 9, 1.7
    deviation = sigma * record / math.sqrt(shares)
    assert fits(deviation, record, numbers, most, most, shares) == ""
    step = deviation * (1 + 2.0**-12) / 2**40
    change = record / step + math.sqrt(numbers) + 2 * most**2 * 2.0**-53 * record / step
    assert math.sqrt(shares) * 2**40 / change >= sigma


def test_sums_without_room_are_refused() -> None:
    assert fits() == ""
    assert "there is none: take noise" in fits(deviation=0.0)
    assert "there is none: take noise" in fits(deviation=math.nan)
    assert "share the records among more nodes" in fits(most=2 * 10**6)
    assert "share the records among more nodes" in fits(deviation=1e6, numbers=10**6)
    assert fits(units=2**22) == ""
    assert "too large for whole steps" in fits(units=2**22 + 2**11)
    assert "too large for whole steps" in fits(shares=2**32)


def test_noise_keeps_within_its_room() -> None:
    """64 deviations, of which a draw never takes 10."""
    drawn = discrete_gaussian(100_000, stream(0, "noise"))
    assert int(np.abs(drawn).max()) < 10 * SCALE < 2**62
