"""Balls in bins: its epsilon is never below the truth, and hardly above it; and what a ledger makes of its steps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import irfft, rfft
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import beta, norm

from fedfair.accounting import Event, Ledger, Release, calibrate, epsilon
from fedfair.accounting.allocation import _CELLS, Allocation, _sum
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.fourier import split
from fedfair.accounting.knots import Floats
from tests.for_each import for_each

DELTA = 1e-5


def excess(multiplier: float, least: float) -> float:
    """E (Y - k)+ of one lognormal Y of mean 1, as Black and Scholes price a call."""
    if least <= 0:
        return 1 - least
    middle = -math.log(least) * multiplier
    return float(ndtr(middle + 0.5 / multiplier) - least * ndtr(middle - 0.5 / multiplier))


def deficit(multiplier: float, most: float) -> float:
    """E (k - Y)+ of the same, a put."""
    if most <= 0:
        return 0.0
    middle = math.log(most) * multiplier
    return float(most * ndtr(middle + 0.5 / multiplier) - ndtr(middle - 0.5 / multiplier))


def of_two_steps(epoch: Allocation, at: float) -> float:
    """Delta at an epsilon of an epoch with two steps made, the larger of both directions, by integration over one."""
    rest, s = epoch.bins - 2, epoch.multiplier

    def integral(inner: Callable[[float], float]) -> float:
        """Integrate over the other step's outcome."""

        def weighted(z: float) -> float:
            """Weigh the inner mean at one outcome by its density."""
            return inner(math.exp((2 * s * z - 1) / (2 * s * s))) * float(norm.pdf(z))

        return float(quad(weighted, -9, 9 + 1 / s, limit=2000, epsabs=1e-13, epsrel=1e-9)[0])

    removed = integral(lambda y: excess(s, epoch.bins * math.exp(at) - rest - y)) / epoch.bins
    added = integral(lambda y: deficit(s, epoch.bins * math.exp(-at) - rest - y)) / epoch.bins * math.exp(at)
    return max(removed, added)


@lru_cache(maxsize=2)
def fine(epoch: Allocation, interval: float, moved: float) -> tuple[Floats, Floats]:
    """Return ratios and their probabilities: every Y of a long epoch on a fine linear grid, by one transform.

    Each is moved down to the grid (`moved` = 1), which makes the removal's delta smaller, or to the nearest (0.5).
    """
    s, cells = epoch.multiplier, 2**20
    edges = np.maximum(interval * (np.arange(cells + 1) + moved - 1), 0)
    with np.errstate(divide="ignore"):
        outcomes = s * np.log(edges) + 0.5 / s
    mass = np.where(outcomes[:-1] > 0, ndtr(-outcomes[:-1]) - ndtr(-outcomes[1:]), np.diff(ndtr(outcomes)))
    total = irfft(rfft(mass.astype(np.longdouble)) ** epoch.steps, cells)
    return (interval * np.arange(cells) + epoch.bins - epoch.steps) / epoch.bins, total


def losses(epoch: Allocation, count: int, with_record: bool, random: np.random.Generator) -> Floats:
    """Draw privacy losses of an epoch as its definition says, in the direction in which they are drawn."""
    outcomes = epoch.multiplier * random.standard_normal((count, epoch.bins))
    if with_record:
        outcomes[np.arange(count), random.integers(epoch.bins, size=count)] += 1
    seen = outcomes[:, :epoch.steps]
    ratios = np.exp((2 * seen - 1) / (2 * epoch.multiplier**2)).sum(1) + epoch.bins - epoch.steps
    return np.asarray((1 if with_record else -1) * np.log(ratios / epoch.bins))


def refuted(epochs: list[Allocation], at: float, delta: float, count: int = 200_000) -> bool:
    """Say whether draws refute (epsilon, delta), at a level of 1e-6: delta is the probability of an event.

    The loss exceeds epsilon by more than an exponential variable with probability E (1 - exp(epsilon - loss))+.
    """
    random = np.random.default_rng(1)
    for with_record in (True, False):
        total = sum(losses(epoch, count, with_record, random) for epoch in epochs)
        hits = int((total - at > random.exponential(size=count)).sum())
        if hits and beta.ppf(1e-6, hits, count - hits + 1) > delta:
            return True
    return False


@for_each("bins", [2, 40])
@for_each("multiplier", [0.3, 1.0, 2.0, 8.0])
@for_each("delta", [1e-3, 1e-6, 1e-9])
def test_epsilon_of_two_steps_is_the_integral(bins: int, multiplier: float, delta: float) -> None:
    epoch = Allocation(bins, 2, multiplier)
    bound = epsilon({epoch: 1}, delta)
    assert of_two_steps(epoch, bound) <= delta
    assert of_two_steps(epoch, bound / 1.003 - 1e-4) > delta or bound < 1e-4


@for_each("multiplier", [0.5, 1.0, 3.0])
@for_each("delta", [1e-2, 1e-6, 1e-12])
def test_one_step_or_one_bin_is_a_release_exactly(multiplier: float, delta: float) -> None:
    gaussian, poisson = {Release(1.0, multiplier): 7}, {Release(0.05, multiplier): 7}
    assert epsilon({Allocation(1, 1, multiplier): 7}, delta) == epsilon(gaussian, delta)
    assert epsilon({Allocation(20, 1, multiplier): 7}, delta) == epsilon(poisson, delta)
    assert epsilon({Allocation(20, 0, multiplier): 7}, delta) == 0


@for_each("epoch", [Allocation(100, 60, 1.0), Allocation(10, 7, 0.8), Allocation(1000, 1000, 1.0)])
def test_epsilon_of_a_long_epoch_is_that_of_a_fine_grid(epoch: Allocation) -> None:
    for delta in (1e-3, 1e-6, 1e-10):
        bound = epsilon({epoch: 1}, delta)
        for moved, at, enough in ((1.0, bound, delta), (0.5, bound, 1.001 * delta)):
            ratios, mass = fine(epoch, 0.01, moved)
            assert mass @ np.maximum(ratios - math.exp(at), 0) <= enough
        assert mass @ np.maximum(ratios - math.exp(0.995 * bound), 0) > delta


@pytest.mark.parametrize("epochs", [
    [Allocation(30, 30, 0.7)], [Allocation(30, 30, 1.0)] * 4, [Allocation(8, 8, 1.0), Allocation(8, 3, 1.0)],
    [Allocation(50, 20, 0.5)], [Allocation(2, 2, 2.0)] * 10])
def test_no_draws_refute_an_epsilon_and_they_refute_a_smaller_one(epochs: list[Allocation]) -> None:
    counted = {epoch: epochs.count(epoch) for epoch in epochs}
    bound = epsilon(counted, 1e-2)
    assert not refuted(epochs, bound, 1e-2)
    assert refuted(epochs, 0.9 * bound, 1e-2)


def test_epochs_compose_with_other_releases() -> None:
    """Beside a Gaussian of all records, and beside Poisson samples; draws refute less than is charged."""
    epoch, gaussian, poisson = Allocation(20, 20, 1.0), Release(1.0, 3.0), Release(0.05, 1.0)
    alone, together = epsilon({epoch: 3}, DELTA), epsilon({epoch: 3, gaussian: 1, poisson: 10}, DELTA)
    beside = epsilon({gaussian: 1, poisson: 10}, DELTA)
    assert max(alone, beside) < together < alone + epsilon({gaussian: 1, poisson: 10}, DELTA / 2) + 0.2
    bound = epsilon({epoch: 3, gaussian: 1}, 1e-2)
    as_epochs = [epoch] * 3 + [Allocation(1, 1, 3.0)]
    assert not refuted(as_epochs, bound, 1e-2)
    assert refuted(as_epochs, 0.9 * bound, 1e-2)


@settings(deadline=None, max_examples=8)
@given(st.integers(2, 30), st.floats(0.4, 4.0), st.integers(1, 20), st.floats(-9, -2))
def test_less_noise_a_smaller_delta_or_more_epochs_cost_more(bins: int, multiplier: float, count: int, log: float
                                                             ) -> None:
    delta = 10**log
    cost = epsilon({Allocation(bins, bins, multiplier): count}, delta)
    assert epsilon({Allocation(bins, bins, 1.1 * multiplier): count}, delta) <= cost
    assert epsilon({Allocation(bins, bins, multiplier): count}, 2 * delta) <= cost
    assert epsilon({Allocation(bins, bins, multiplier): 2 * count}, delta) >= cost
    assert epsilon({Allocation(bins, (bins + 1) // 2, multiplier): count}, delta) <= cost
    assert epsilon({Allocation(2 * bins, 2 * bins, multiplier): count}, delta) <= cost


@for_each("multiplier", [0.6, 1.0, 2.0])
@for_each("bins", [10, 1000])
@for_each("count", [1, 20])
def test_epsilon_is_below_poissons_at_usual_settings(multiplier: float, bins: int, count: int) -> None:
    """No theorem says so: with few steps it is far below, with many nearly the same."""
    poisson = epsilon({Release(1 / bins, multiplier): bins * count}, DELTA)
    assert 0.6 * poisson < epsilon({Allocation(bins, bins, multiplier): count}, DELTA) < poisson


@for_each("accountant", ["rdp", "rdp-classic"])
def test_other_accountants_charge_an_epoch_as_one_release(accountant: str) -> None:
    cost = epsilon({Allocation(50, 40, 2.0): 3}, DELTA, accountant)
    assert cost == epsilon({Release(0.8, 2.0): 3}, DELTA, accountant)
    assert cost > epsilon({Allocation(50, 40, 2.0): 3}, DELTA)


@for_each("epoch", [Allocation(1000, 1000, 0.1), Allocation(20_000, 20_000, 1.0), Allocation(2, 2, 0.06),
                    Allocation(5, 5, 0.01), Allocation(3, 3, 1e4), Allocation(100_000, 2, 0.5)])
@for_each("delta", [0.5, 1e-12])
def test_extremes_are_finite_and_below_one_release(epoch: Allocation, delta: float) -> None:
    """One release on a Poisson sample of all the epoch's steps costs at least as much; see `Allocation.rate`."""
    once = epsilon({Release(epoch.rate, epoch.multiplier): 1}, delta)
    assert 0 <= epsilon({epoch: 1}, delta) <= 1.02 * once + 1e-6


def test_no_noise_is_no_guarantee_and_no_records_cost_nothing() -> None:
    assert math.isinf(epsilon({Allocation(10, 5, 0.0): 1}, DELTA))
    assert epsilon({Allocation(10, 0, 0.0): 1, Allocation(10, 5, math.inf): 3}, DELTA) == 0


def test_noise_is_found_for_a_target() -> None:
    noise = calibrate(lambda multiplier: {Allocation(20, 20, multiplier): 3}, 1.0, DELTA)
    assert 0.999 < epsilon({Allocation(20, 20, noise): 3}, DELTA) <= 1.0


def test_an_epoch_that_cannot_be_is_refused() -> None:
    for bins, steps in ((10, 11), (0, 0), (10, -1)):
        with pytest.raises(ValueError, match=f"an epoch has {bins} steps, of which {steps} were made: take at least 1"):
            Allocation(bins, steps, 1.0)
    with pytest.raises(ValueError, match="noise multiplier nan"):
        epsilon({Allocation(10, 5, math.nan): 1}, DELTA)


@for_each("multiplier", [0.3, 1.0, 5.0])
@for_each("steps", [1, 2, 7, 100])
def test_rounding_keeps_the_mean_and_adds_little_variance(multiplier: float, steps: int) -> None:
    found = _sum(multiplier, steps, 1e-9)
    assert len(found.values) <= 1.3 * _CELLS
    assert found.mass.sum() + found.zero == pytest.approx(1, abs=1e-12)
    mean = found.values @ found.mass + found.infinite
    assert -1e-12 < mean / steps - 1 < 2e-9  # both ends are taken for infinite
    variance = steps * math.expm1(multiplier**-2)
    if multiplier >= 1:  # with less noise most of it lies beyond the grid
        assert variance * (1 - 1e-3) < found.mass @ (found.values - steps) ** 2 < variance * 1.01


@given(st.lists(st.tuples(st.floats(0, 99), st.floats(0, 1)), min_size=1, max_size=30))
def test_splitting_keeps_mass_and_mean(pairs: list[tuple[float, float]]) -> None:
    values, mass = np.array(pairs).T
    grid = np.array([0.0, 1.0, 5.0, 30.0, 100.0])
    moved = split(values, mass, grid, np.searchsorted(grid, values, side="right") - 1)
    assert (moved >= 0).all()
    assert moved.sum() == pytest.approx(mass.sum(), abs=1e-12)
    assert moved @ grid == pytest.approx(mass @ values, abs=1e-9)


def step_of(bins: int | None, *spent: float, counts: float | None = None) -> Event:
    """Return a step in which groups are charged different multipliers, of balls in bins or a Poisson sample."""
    return Event((1 / (bins or 20),) * len(spent), (1.0,) * len(spent), spent, counts, bins=bins)


def ledger_of(*steps: tuple[Event, int]) -> Ledger:
    """Return a ledger of two groups."""
    ledger = Ledger(("a", "b"), DELTA)
    for event, times in steps:
        ledger.record(event, times)
    return ledger


def test_a_ledger_charges_whole_epochs_and_the_begun_one() -> None:
    ledger = ledger_of((step_of(10, 1.0, 1.0), 25))
    assert ledger.epsilon() == epsilon({Allocation(10, 10, 1.0): 2, Allocation(10, 5, 1.0): 1}, DELTA)
    assert ledger.after(0.4).epsilon() == epsilon({Allocation(10, 10, 1.0): 1}, DELTA)
    assert ledger.guarantee == "proved"
    assert "balls in bins" in ledger.reason
    assert "Poisson" not in ledger.reason
    assert math.isinf(ledger.by_observer()["server"])


def test_an_epoch_is_charged_the_least_noise_of_its_steps() -> None:
    """In the second epoch group b once had less noise; group a always had the same."""
    ledger = ledger_of((step_of(10, 1.0, 2.0), 13), (step_of(10, 1.0, 1.5), 1), (step_of(10, 1.0, 2.0), 6))
    assert ledger.epsilon_by_group() == {
        "a": epsilon({Allocation(10, 10, 1.0): 2}, DELTA),
        "b": epsilon({Allocation(10, 10, 2.0): 1, Allocation(10, 10, 1.5): 1}, DELTA)}
    assert ledger.guaranteed_by_group()["b"] == ledger.epsilon_by_group()["a"]


def test_counts_of_a_step_are_part_of_it() -> None:
    ledger = ledger_of((step_of(10, 1.0, 1.0, counts=1.0), 10))
    assert ledger.epsilon() == epsilon({Allocation(10, 10, 1 / math.hypot(1, 1)): 1}, DELTA)
    assert ledger.epsilon_separate() == epsilon({Allocation(10, 10, 1.0): 2}, DELTA)


def test_an_odometer_charges_every_epoch_in_full_before_its_first_step() -> None:
    ledger = ledger_of((step_of(10, 1.0, 2.0), 11))
    whole = Ledger(("a", "b"), DELTA)
    whole.record(Event((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)), 2)
    assert ledger.odometer_by_group() == pytest.approx(whole.odometer_by_group())
    assert ledger.odometer_by_group()["a"] > ledger.epsilon()


def test_epochs_compose_with_what_else_a_ledger_holds() -> None:
    ledger = ledger_of((step_of(20, 1.0, 1.0), 20), (step_of(None, 1.0, 1.0), 5))
    ledger.record_preprocessing(Preprocessed(10.0, 0.0))
    assert ledger.epsilon() == epsilon(
        {Allocation(20, 20, 1.0): 1, Release(0.05, 1.0): 5, Release(1.0, 10.0): 1}, DELTA)
    assert "balls in bins (each record in one random batch of every epoch) or of a Poisson sample" in ledger.reason


def test_a_ledger_of_balls_in_bins_goes_to_json_and_back() -> None:
    ledger = ledger_of((step_of(10, 1.0, 2.0), 7))
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    again.record(step_of(10, 1.0, 2.0), 3)
    assert again.epsilon_by_group() == ledger_of((step_of(10, 1.0, 2.0), 10)).epsilon_by_group()
    kept = json.loads(json.dumps(ledger_of((step_of(None, 1.0, 2.0), 7)).to_dict()))
    for entry in kept["events"]:
        del entry["bins"]  # as runs of before have it
    assert Ledger.from_dict(kept).events == ledger_of((step_of(None, 1.0, 2.0), 7)).events


def test_a_step_of_balls_in_bins_is_not_released_again() -> None:
    ledger = ledger_of((step_of(10, 1.0, 1.0), 7))
    with pytest.raises(ValueError, match="balls in bins cannot be released again"):
        ledger.log.rewind(5)
    ledger_of((step_of(None, 1.0, 1.0), 7)).log.rewind(5)


def test_a_step_of_balls_in_bins_has_the_rates_of_its_bins() -> None:
    with pytest.raises(ValueError, match=r"balls in 10 bins has the sampling rates \(0.1, 0.2\): each is 1/10"):
        Event((0.1, 0.2), (1.0, 1.0), (1.0, 1.0), bins=10)
    with pytest.raises(ValueError, match="balls in 10 bins has the sampling rates"):
        Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0), bins=10, spent_rates=(0.05, 0.1))
    assert Event((0.1, 0.0), (1.0, 1.0), (1.0, 1.0), bins=10).bins == 10
