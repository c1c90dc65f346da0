"""Poisson sampling: every record is drawn independently, with the stated probability, whichever client holds it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedfair.mechanisms import randomness
from fedfair.mechanisms.randomness import poisson
from tests.for_each import for_each

STEPS, RECORDS, RATE = 1500, 400, 0.1


def joined(records: Tensor, rate: float | Tensor, steps: int, seed: int = 0) -> np.ndarray:
    """Who joined which batch: `[steps, n]` of 0 and 1."""
    found = np.zeros((steps, len(records)), dtype=np.int64)
    for step in range(steps):
        found[step, poisson(seed, step, records, rate).numpy()] = 1
    return found


@pytest.fixture(scope="module")
def batches() -> np.ndarray:
    return joined(torch.arange(RECORDS), RATE, STEPS)


def independent(a: np.ndarray, b: np.ndarray) -> float:
    """p-value of a chi-square test on the four counts of two events."""
    table = [[int(((a == i) & (b == j)).sum()) for j in (0, 1)] for i in (0, 1)]
    return float(stats.chi2_contingency(table).pvalue) if np.min(np.sum(table, 0)) * np.min(np.sum(table, 1)) else 0.0


def test_it_is_the_splitmix64_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published outputs for the seed 1234567: a record joins exactly if its output lies below its rate."""
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
               16408922859458223821]
    monkeypatch.setattr(randomness, "key", lambda *parts: 1234567)
    uniform = np.array([out >> 11 for out in outputs]) * 2.0**-53
    records = torch.arange(5)
    assert poisson(0, 0, records, torch.from_numpy(uniform)).tolist() == []
    assert poisson(0, 0, records, torch.from_numpy(np.nextafter(uniform, 1))).tolist() == [0, 1, 2, 3, 4]


def test_it_is_a_pure_function() -> None:
    first = poisson(3, 7, torch.arange(100), 0.3)
    poisson(3, 8, torch.arange(50), 0.3)
    assert torch.equal(poisson(3, 7, torch.arange(100), 0.3), first)
    assert not torch.equal(poisson(4, 7, torch.arange(100), 0.3), first)
    assert not torch.equal(poisson(3, 8, torch.arange(100), 0.3), first)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.lists(st.integers(0, 4), max_size=60), st.floats(0, 1))
def test_the_batch_does_not_depend_on_who_holds_which_record(seed: int, step: int, holders: list[int],
                                                             rate: float) -> None:
    records = torch.arange(len(holders)) * 3 + 5
    whole = records[poisson(seed, step, records, rate)]
    held = [records[torch.tensor(holders) == c] for c in range(5)]
    assert sorted(whole.tolist()) == sorted(
        int(r) for own in held for r in own[poisson(seed, step, own, rate)])


def test_the_order_of_the_records_does_not_matter() -> None:
    records = torch.arange(200)
    shuffled = records[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    rows = poisson(1, 2, shuffled, 0.2)
    assert rows.tolist() == sorted(rows.tolist())
    assert set(shuffled[rows].tolist()) == set(poisson(1, 2, records, 0.2).tolist())


@pytest.mark.parametrize("rates", [torch.zeros(50, dtype=torch.float64), 0.0])
def test_rate_0_takes_nobody(rates: float | Tensor) -> None:
    assert all(len(poisson(seed, 0, torch.arange(50), rates)) == 0 for seed in range(200))


@pytest.mark.parametrize("rates", [torch.ones(50, dtype=torch.float64), 1.0])
def test_rate_1_takes_everybody(rates: float | Tensor) -> None:
    assert all(poisson(seed, 0, torch.arange(50), rates).tolist() == list(range(50)) for seed in range(200))


def test_no_records_give_an_empty_batch() -> None:
    for rates in (0.5, torch.zeros(0, dtype=torch.float64)):
        rows = poisson(0, 0, torch.arange(0), rates)
        assert rows.dtype == torch.long
        assert rows.shape == (0,)


def test_each_record_joins_as_often_as_its_rate_says(batches: np.ndarray) -> None:
    """Over steps for each record, and over records for each step: totals and spread of a binomial."""
    for counts, trials in ((batches.sum(0), STEPS), (batches.sum(1), RECORDS)):
        chi2 = float(((counts - trials * RATE) ** 2 / (trials * RATE * (1 - RATE))).sum())
        assert 1e-4 < stats.chi2.cdf(chi2, len(counts)) < 1 - 1e-4
        assert stats.binomtest(int(counts.sum()), trials * len(counts), RATE).pvalue > 1e-4
        assert stats.binomtest(int(counts.max()), trials, RATE).pvalue > 1e-6


def test_batch_sizes_vary_as_poisson_sampling_makes_them(batches: np.ndarray) -> None:
    """Hazard 4: not a fixed size."""
    sizes = batches.sum(1)
    assert sizes.std() == pytest.approx((RECORDS * RATE * (1 - RATE)) ** 0.5, rel=0.1)


@for_each("rate", [0.5, 0.1])
@for_each("apart", [1, 2, 3, 7, 64])
def test_neighbouring_records_and_steps_are_independent(rate: float, apart: int) -> None:
    found = joined(torch.arange(400), rate, 600)
    assert independent(found[:, apart:], found[:, :-apart]) > 1e-4
    assert independent(found[apart:], found[:-apart]) > 1e-4
    assert independent(found[apart:, apart:], found[:-apart, :-apart]) > 1e-4


def test_no_record_and_no_step_resembles_another() -> None:
    """Correlations between all pairs are as small as chance makes them; a broken mixer repeats itself."""
    found = joined(torch.arange(300), 0.5, 2000)
    for table in (found, found[:300].T):
        correlations = np.corrcoef(table, rowvar=False)[np.triu_indices(table.shape[1], 1)]
        assert np.abs(correlations).max() < 6 / len(table) ** 0.5
        assert correlations.std() == pytest.approx(len(table) ** -0.5, rel=0.05)


def test_seeds_are_independent() -> None:
    one, other = (joined(torch.arange(300), 0.3, 300, seed) for seed in (0, 1))
    assert independent(one, other) > 1e-4


def test_every_record_has_its_own_rate() -> None:
    rates = torch.tensor([0.0, 0.02, 0.3, 0.9, 1.0], dtype=torch.float64)
    counts = joined(torch.arange(5), rates, 3000).sum(0)
    assert counts[0] == 0
    assert counts[4] == 3000
    assert all(stats.binomtest(int(counts[i]), 3000, float(rates[i])).pvalue > 1e-4 for i in (1, 2, 3))


def test_equal_rates_one_by_one_are_the_single_rate() -> None:
    records = torch.arange(500)
    assert torch.equal(poisson(0, 3, records, 0.2), poisson(0, 3, records, torch.full((500,), 0.2).double()))


def test_large_record_numbers_are_as_good_as_small_ones() -> None:
    records = torch.tensor([0, 2**31, 2**32, 2**40, 2**62, 2**63 - 1])
    counts = joined(records, 0.25, 2000).sum(0)
    assert all(stats.binomtest(int(c), 2000, 0.25).pvalue > 1e-4 for c in counts)


def test_without_a_seed_the_operating_system_decides_anew() -> None:
    """Hazard 14: nobody can derive the batch."""
    drawn = [poisson(None, 0, torch.arange(400), 0.3) for _ in range(200)]
    assert len({tuple(rows.tolist()) for rows in drawn}) == 200
    assert stats.binomtest(sum(map(len, drawn)), 400 * 200, 0.3).pvalue > 1e-4
    assert len(poisson(None, 0, torch.arange(50), torch.zeros(50, dtype=torch.float64))) == 0
    assert poisson(None, 0, torch.arange(50), 1.0).tolist() == list(range(50))
