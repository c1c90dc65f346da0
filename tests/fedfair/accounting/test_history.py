"""A ledger as it stood earlier is the ledger that was kept until then."""

from __future__ import annotations

import pytest

from fedfair.accounting import Event, Ledger


def kept(steps: int) -> Ledger:
    ledger = Ledger(("a", "b"), 1e-5)
    for step in range(steps):
        ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 2.0 if step % 2 else 3.0), 10.0))
    return ledger


def test_half_of_a_run_costs_what_a_run_of_half_the_steps_costs() -> None:
    whole, half = kept(10), kept(5)
    for share, expected in ((1.0, whole), (0.5, half), (0.0, kept(0))):
        assert whole.after(share).events == expected.events
        assert whole.after(share).epsilon_by_group() == expected.epsilon_by_group()
    assert whole.events == kept(10).events


def test_every_clients_steps_are_cut_at_the_same_share() -> None:
    ledger = Ledger(("a", "b"), 1e-5)
    ledger.record(Event((0.1, 0.0), (1.0, 1.0), (1.0, 1.0), None, 0), 8)
    ledger.record(Event((0.0, 0.2), (1.0, 1.0), (1.0, 1.0), None, 1), 4)
    assert sorted(ledger.after(0.5).events.values()) == [2, 4]
    with pytest.raises(ValueError, match="from 0 to 1"):
        ledger.after(1.5)
