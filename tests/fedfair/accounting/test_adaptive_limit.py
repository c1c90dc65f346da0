"""A limit that holds although releases are chosen on the way."""

from __future__ import annotations

import pytest

from fedfair.accounting.composition import epsilon
from fedfair.accounting.events import Release
from fedfair.accounting.odometer import reading, spent, stays_within


def test_equal_releases_are_composed_and_others_read_by_an_odometer() -> None:
    one, two = {Release(0.01, 1.0): 1000}, {Release(0.01, 1.0): 1000, Release(0.01, 1.1): 1}
    assert spent(one, 1e-6) == epsilon(one, 5e-7) < reading(one, 5e-7)
    assert spent(two, 1e-6) == reading(two, 5e-7)


@pytest.mark.parametrize("releases", [{Release(0.01, 1.0): 1000}, {Release(0.01, 1.0): 9, Release(1.0, 9.0): 2}])
def test_the_limit_is_where_it_is_said(releases: dict[Release, int]) -> None:
    least = spent(releases, 1e-6)
    assert stays_within(releases, least, 1e-6)
    assert not stays_within(releases, least * 0.9999, 1e-6)


def test_a_release_without_noise_stays_within_no_limit() -> None:
    assert not stays_within({Release(0.5, 0.0): 1}, 1e300, 1e-6)
    assert stays_within({Release(0.0, 0.0): 1}, 1e-9, 1e-6)


def test_an_adaptive_choice_that_beats_a_composition_does_not_beat_the_limit() -> None:
    """A server that goes on with less noise only where the first release was lucky: its end is no plan of any kind.

    The exact privacy loss of the two-step strategy, on a grid of outcomes, exceeds a composition of the average plan.
    """
    import numpy as np
    from scipy.stats import norm

    delta, grid = 1e-3, np.linspace(-12, 13, 200_001)
    first, second = 2.0, 0.9
    width = grid[1] - grid[0]
    density = norm.pdf(grid, 1, first) * width
    loss = (2 * grid - 1) / (2 * first**2)
    both = spent({Release(1.0, first): 1, Release(1.0, second): 1}, delta)
    alone = spent({Release(1.0, first): 1}, delta)
    goes_on = loss > 0.4
    left = np.where(goes_on, both, max(both, alone)) - loss
    gaussian = norm.cdf(0.5 / second - left * second) - np.exp(np.minimum(left, 700)) * norm.cdf(
        -0.5 / second - left * second)
    reached = np.sum(density * np.where(goes_on, gaussian, np.maximum(0, 1 - np.exp(left))))
    assert 0 < reached <= delta
