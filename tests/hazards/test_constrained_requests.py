"""A server that asks a node with a policy for constrained sums: what is charged, and what no request gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.mechanisms.counting import AboveAndBelow, Predictions
from fedfair.node import node as node_module
from tests.hazards.policed import POLICY, Server, ledger, round_, weights, write_data, write_policy

NAME = "constrained_sums.send_constrained_sum"
LISTED = {"exchanges": [*POLICY["exchanges"], NAME], "queries": [*POLICY["queries"], "predictions"]}
PRICES = [0.5, -0.5, 1.0, 0.0]
JOINT = (0.1, pytest.approx((1 + 1 / 100) ** -0.5))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which a node runs, with data."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "patients.csv")
    return tmp_path


def asked(server: Server, prices: list[float] = PRICES, **changes: object) -> str:
    plan = round_(**{"query": Predictions(2.0), **changes})
    return server.reason(NAME, plan=plan, weights=weights(), prices=prices)


def test_sum_and_histogram_are_one_charge(node: Path) -> None:
    write_policy(node, **LISTED)
    assert asked(Server.new()) == ""
    assert list(ledger(node).items()) == [(JOINT, 1)]


def test_exchange_and_query_must_both_be_listed(node: Path) -> None:
    for missing in LISTED:
        write_policy(node, **{key: value for key, value in LISTED.items() if key != missing})
        assert "policy" in asked(Server.new())
    assert ledger(node) == {}


def test_no_batch_serves_two_sums_whatever_their_prices(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference of two sums over one batch, with other prices, would tell more than both are charged for."""
    drawn, before = [], node_module.draw
    monkeypatch.setattr(node_module, "draw", lambda data, plan: drawn.append(plan.label) or before(data, plan))
    write_policy(node, **LISTED)
    server = Server.new()
    assert [asked(server), asked(server, PRICES[::-1])] == ["", ""]
    assert server.reason("exchanges.send_gradient_sum", plan=round_(), weights=weights()) == ""
    assert drawn == ["a"] * 3
    assert list(ledger(node).items()) == [(JOINT, 2), ((0.1, 1.0), 1)]


def test_a_histogram_without_noise_or_without_its_query_is_refused(node: Path) -> None:
    write_policy(node, **LISTED)
    server = Server.new()
    assert asked(server, count_noise_multiplier=0.0) != ""
    assert asked(server, query=None) != ""
    assert asked(server, query=AboveAndBelow((1.0, 1.0))) != ""
    assert asked(server, PRICES[:-1]) != ""


def test_what_the_node_refuses_is_the_same_whatever_its_records(node: Path) -> None:
    said = []
    for seed, records in ((0, 200), (1, 90)):
        write_data(node / "patients.csv", seed, records)
        write_policy(node, **LISTED, ledger=f"{seed}.jsonl")
        for change in ({"query": None}, {"rates": (0.0, 0.0)}, {"rates": (0.4, 0.4)}):
            said.append(Server.new().reason("exchanges.send_counts", "query", weights=weights(), plan=round_(
                **{"query": Predictions(2.0), **change})))
    assert said[:3] == said[3:]
    assert said[1] == said[2] != ""
