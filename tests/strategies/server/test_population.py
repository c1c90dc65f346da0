"""Clients report rounded numbers of records; the rate that is charged is the rate at which records are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedfair.node import node as host
from simulations import run
from tests.strategies.test_contract import experiment, server, weights


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[float], torch.Tensor, torch.Tensor]]:
    """Return rates, records and batch of every Poisson batch that a run draws."""
    seen: list[tuple[set[float], torch.Tensor, torch.Tensor]] = []
    real = host.poisson

    def spy(seed: int, step: int, records: torch.Tensor, rates: Any) -> torch.Tensor:
        rows = real(seed, step, records, rates)
        seen.append((set(rates.tolist() if isinstance(rates, torch.Tensor) else [rates]), records, rows))
        return rows

    monkeypatch.setattr(host, "poisson", spy)
    return seen


@pytest.mark.parametrize("round_sizes", [1, 10, 100])
def test_clients_tell_multiples_and_never_too_few(round_sizes: int) -> None:
    exact, told = (server("dpsgd", round_sizes=by).population.sizes for by in (1, round_sizes))
    for own, public in zip(np.ravel(exact), np.ravel(told), strict=True):
        assert public % round_sizes == 0
        assert own <= public < own + round_sizes
        assert (public == 0) is (own == 0)


@pytest.mark.parametrize("sync", ["step", "epoch"])
@pytest.mark.parametrize("strategy", ["dpsgd-f", "gs-dp-sgd"])
@pytest.mark.parametrize("round_sizes", [1, 50])
def test_the_rate_that_is_charged_is_the_rate_at_which_records_are_drawn(
        strategy: str, sync: str, round_sizes: int, drawn: list[tuple[set[float], Any, Any]]) -> None:
    """Hazard 7 too: the client with 5 records and batches of 16 has rate 1 at most, and one step at least."""
    ledger = run(experiment(strategy, sync=sync, round_sizes=round_sizes, batch_size=16, steps=2)).ledger
    charged = {rate for event in ledger.events for rate in event.rates} - {0.0}
    assert set.union(*(rates for rates, _, _ in drawn)) == charged
    assert max(charged) <= 1
    public = server(strategy, sync=sync, round_sizes=round_sizes, batch_size=16).population
    if sync == "step" and strategy == "dpsgd-f":
        assert charged == {16 / public.records}
    else:
        assert charged == {min(1.0, 16 / size) for size in public.by_group}
    if sync == "epoch":
        assert len(drawn) == sum(ledger.events.values()) == 2 * sum(max(1, size // 16) for size in public.by_client)


def test_batches_are_poisson_at_the_rate_that_is_charged(drawn: list[tuple[set[float], Any, torch.Tensor]]) -> None:
    """Hazard 4: sizes of batches vary as Poisson sampling has it, which shuffled batches of fixed size do not."""
    run(experiment("dpsgd", steps=150, batch_size=32, round_sizes=100, eval_every=1000))
    (rate,), records, _ = drawn[0]
    sizes = np.array([len(rows) for _, _, rows in drawn])
    expected = stats.binom(len(records), rate)
    assert abs(sizes.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(len(sizes))
    assert 0.7 < sizes.var(ddof=1) / expected.var() < 1.4


def test_the_ledger_says_what_is_public() -> None:
    exact, rounded = (run(experiment("dpsgd", round_sizes=by, steps=1)).ledger.public for by in (1, 100))
    assert "numbers of records by group and client" in exact
    assert rounded == exact + " (numbers rounded up to multiples of 100)"


def test_one_record_more_is_not_seen_while_the_rounded_sizes_stay() -> None:
    """Rates, divisors and steps depend on the rounded sizes alone: only the sums of gradients differ."""
    plain, more = (server("gs-dp-sgd", sync="epoch", round_sizes=50, imbalance=f"8:{n}") for n in (30, 31))
    assert plain.population == more.population
    assert plain.schedules() == more.schedules()
    assert plain.client_weights() == more.client_weights()


def test_rounding_by_one_changes_no_bit() -> None:
    for sync in ("step", "epoch"):
        assert torch.equal(*(weights(run(experiment("dpsgd", sync=sync, **sizes)))
                             for sizes in ({}, {"round_sizes": 1})))
