"""Whole runs over nodes with a policy: honest ones as without it, and one whose budget ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedfair.accounting.events import Release
from fedfair.accounting.odometer import spent
from fedfair.node.node import ClientError
from fedfair.node.node_ledger import NodeLedger
from simulations import Experiment, run
from tests.hazards.policed import POLICY, TASK, write_data, write_policy

ALL = {"evaluated_parts": ["train", "valid", "test"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "patients.csv")
    return tmp_path


def experiment(**changes: Any) -> Experiment:
    return Experiment(**{**TASK, "model": "logistic", "strategy": "dpsgd-f", "steps": 5, "batch_size": 14,
                         "noise_multiplier": 1.0, "trust": "local", "randomness": "system", "delta": 1e-5, **changes})


def released(folder: Path) -> dict[Release, int]:
    return dict(NodeLedger(folder / "fedfair-node-ledger.jsonl").released("patients"))


@pytest.mark.parametrize("settings", [
    {"sync": "step"}, {"sync": "epoch"}, {"sync": "epoch", "local_epochs": 2},
    {"strategy": "scaffold", "sync": "epoch", "local_epochs": 2}])
def test_an_honest_run_is_entered_as_in_its_own_ledger(folder: Path, settings: dict[str, Any]) -> None:
    """The node's ledger has the noise of the run's, whose figure is for the worst-off group, and adds up all runs."""
    write_policy(folder, **ALL, exchanges=[*POLICY["exchanges"], "exchanges.send_corrected_epochs"])
    ledgers = [run(experiment(**settings)).ledger for _ in range(2)]
    events = [(event.guaranteed(0), count) for ledger in ledgers for event, count in ledger.events.items()]
    node = released(folder)
    assert sum(count for _, count in events) == sum(node.values())
    assert {release.rate for release, _ in events} == {release.rate for release in node}
    for release in node:
        assert release.multiplier == pytest.approx(events[0][0].multiplier)
    assert spent(node, 2e-5) == pytest.approx(spent({events[0][0]: sum(node.values())}, 2e-5))


def test_a_run_ends_where_the_budget_ends(folder: Path) -> None:
    write_policy(folder, **ALL, data=[{**POLICY["data"][0], "largest_epsilon": 3.0}])
    with pytest.raises(ClientError, match="node 0 refuses the request: its budget for these records would be exceeded"):
        run(experiment(sync="step", steps=200))
    before = released(folder)
    assert spent(before, 1e-5) <= 3
    with pytest.raises(ClientError, match="budget"):
        run(experiment(sync="step", steps=1))
    assert released(folder) == before


def test_a_seeded_simulation_is_refused(folder: Path) -> None:
    write_policy(folder, **ALL)
    with pytest.raises(ClientError, match='its policy wants randomness = "system"'):
        run(experiment(randomness="seeded"))


def test_private_preprocessing_is_refused_before_anything_is_released(folder: Path) -> None:
    asked = experiment(ranges=None, preprocessing="private", numbers=["age", "dose"], preprocessing_epsilon=1.0)
    for listed in ([], ["column_counts.send_column_counts"]):
        write_policy(folder, **ALL, exchanges=[*POLICY["exchanges"], *listed])
        with pytest.raises(ClientError, match="preprocessing = 'private', whose release a node with a policy does not"):
            run(asked)
    assert released(folder) == {}


def test_central_trust_needs_a_policy_that_trusts_the_server(folder: Path) -> None:
    write_policy(folder, **ALL)
    with pytest.raises(ClientError, match="smallest noise multiplier"):
        run(experiment(trust="central", sync="step"))
    write_policy(folder, **ALL, trusts_server=True)
    run(experiment(trust="central", sync="step"))
    assert sum(released(folder).values()) == 5


def test_shares_of_distributed_noise_count_as_what_they_are(folder: Path) -> None:
    """One node with all three clients has all the noise; with one of them, a third of its variance."""
    task = {**TASK, "clients": 3}
    write_policy(folder, **ALL, data=[{**POLICY["data"][0], "task": task}])
    distributed = experiment(clients=3, trust="distributed", sync="step", strategy="dpsgd")
    run(distributed, nodes=1)
    (release,) = released(folder)
    assert release.multiplier == pytest.approx(1.0)
    with pytest.raises(ClientError, match="smallest noise multiplier"):
        run(distributed, nodes=3)


def test_a_secure_sum_is_charged_by_the_nodes_own_noise_and_needs_leave_for_its_exchanges(folder: Path) -> None:
    """A node cannot know who else adds noise, so its own ledger counts only its own: that of 2 of 3, and of 1 of 3."""
    task = {**TASK, "features": "ranges", "categories": {}, "clients": 3}
    made = experiment(strategy="moments", model="linear", features="ranges", categories={}, sync="step", clients=3,
                      noise_multiplier=3.0, trust="distributed", noise="discrete", dtype="float64",
                      secure_aggregation=True)
    sums = ["moment_sums.send_masked_moments", "masked_sums.send_keys", "masked_sums.send_key_shares",
            "masked_sums.send_unmasking"]
    allowed = {"data": [{**POLICY["data"][0], "task": task, "largest_sampling_rate": 1.0, "largest_epsilon": 9.0}],
               "models": ["linear"], "exact_exchanges": ["exchanges.send_evaluation", "front_counts.send_front_counts"]}
    for name in sums:
        listed = [*POLICY["exchanges"], *(other for other in sums if other != name)]
        write_policy(folder, **{**ALL, **allowed}, exchanges=listed)
        with pytest.raises(ClientError, match="its policy does not list this exchange"):
            run(made, nodes=2)
    before = released(folder)
    write_policy(folder, **{**ALL, **allowed}, exchanges=[*POLICY["exchanges"], *sums])
    ledger = run(made, nodes=2).ledger
    added = {release.multiplier: times - before.get(release, 0) for release, times in released(folder).items()}
    assert {round(multiplier, 9): times for multiplier, times in added.items()} == {
        round(3 * (2 / 3)**0.5, 9): 1, round(3 * (1 / 3)**0.5, 9): 1}
    assert ledger.guarantee == "proved"
    assert ledger.by_observer()["server"] == pytest.approx(ledger.epsilon())


def test_moments_are_one_release_in_the_nodes_ledger(folder: Path) -> None:
    """And without leave for the figures of the front, the node refuses these alone."""
    task = {**TASK, "features": "ranges", "categories": {}}
    moments = experiment(strategy="moments", model="linear", features="ranges", categories={}, sync="step",
                         noise_multiplier=2.0)
    allowed = {"data": [{**POLICY["data"][0], "task": task, "largest_sampling_rate": 1.0}], "models": ["linear"],
               "exchanges": [*POLICY["exchanges"], "moment_sums.send_moments"]}
    write_policy(folder, **{**ALL, **allowed})
    with pytest.raises(ClientError, match="its policy does not list this exchange"):
        run(moments)
    write_policy(folder, **{**ALL, **allowed}, exact_exchanges=["exchanges.send_evaluation",
                                                                "front_counts.send_front_counts"])
    ledger = run(moments).ledger
    (release,) = released(folder)
    assert release == Release(1.0, pytest.approx(2.0))  # type: ignore[arg-type]
    assert released(folder)[release] == 2
    assert ledger.guarantee == "proved"
