"""Hazard 8: how Flower's own adaptive clipping moves its bound and scales its noise, and ours on the same updates."""

from __future__ import annotations

from statistics import median

import pytest

from simulations.benchmarks.adaptive_clipping import flower, ours
from simulations.engines.local import quiet_flower

ROUNDS = 8


@pytest.mark.parametrize("server_side", [True, False])
def test_flowers_bound_runs_away_from_the_median_on_both_sides(server_side: bool) -> None:
    """If this fails, Flower has fixed its bit or its noise: say so in the benchmark."""
    with quiet_flower():
        below, above = (flower(start, ROUNDS, server_side) for start in (0.5, 2.0))
    assert below.bounds[-1] < 0.8 * 0.5
    assert above.bounds[-1] > 1.25 * 2.0
    assert median(below.noise_ratios) < 0.96
    assert median(above.noise_ratios) > 1.04


def test_ours_goes_towards_the_median_and_gives_the_noise_of_the_bound_that_clipped() -> None:
    with quiet_flower():
        below, above = (ours(start, ROUNDS) for start in (0.5, 2.0))
    assert 0.8 < below.bounds[-1] < 1.2
    assert 0.8 < above.bounds[-1] < 1.2
    assert median(below.noise_ratios) == pytest.approx(1, abs=0.03)
    assert median(above.noise_ratios) == pytest.approx(1, abs=0.03)
