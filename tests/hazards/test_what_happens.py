"""What happens in a deployment: every line of the tutorial's table has a test, here or where it says."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedfair import client_app
from fedfair.accounting.odometer import spent
from fedfair.node.node import ClientError
from fedfair.node.node_ledger import NodeLedger
from simulations import Experiment, run
from simulations.engines.engines import Local
from simulations.engines.local import LocalGrid
from strategies.server.replies import requests
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.hazards.policed import POLICY, ROUND, TRAINED, Server, local, write_policy

ROOT = Path(__file__).resolve().parents[2]
OWN = "tests/hazards/test_what_happens.py"
LINES = {
    "a node is away at the start": (OWN, "test_a_node_that_is_away_is_waited_for_and_then_named"),
    "a node does not answer in time": ("tests/simulations/engines/test_flower.py",
                                       "test_a_node_that_hangs_is_given_up_after_the_timeout_with_a_sentence"),
    "a node is killed": ("tests/simulations/engines/test_flower.py",
                         "test_a_superlink_with_three_supernodes_of_which_one_is_killed_and_restarted"),
    "the SuperLink is restarted": ("tests/simulations/engines/test_five_sites.py",
                                   "test_a_superlink_and_a_node_are_killed_and_brought_back_and_five_sites_fit"),
    "the SuperLink is killed within a run": ("tests/simulations/engines/test_killed_superlink.py",
                                             "test_the_same_command_goes_on_and_charges_the_lost_round"),
    "a node comes back": ("tests/fedfair/node/test_node_ledger.py",
                          "test_what_was_released_before_a_kill_is_in_the_ledger"),
    "a node without a key comes back": ("tests/simulations/engines/test_own_files.py",
                                        "test_nodes_that_come_back_under_other_ids_are_the_clients_of_their_numbers"),
    "a node comes back with an older ledger": (OWN, "test_an_older_ledger_forgets_what_it_does_not_hold"),
    "a ledger's last line was cut off": ("tests/fedfair/node/test_node_ledger.py",
                                         "test_a_torn_line_is_read_as_spent"),
    "a node answers twice, or for another": ("tests/hazards/test_lying_nodes.py",
                                             "test_two_replies_of_one_node_are_refused"),
    "two runs at once on one data set": (OWN, "test_two_runs_at_once_add_up_and_stay_within_one_budget"),
    "the budget ends in the middle": ("tests/simulations/engines/test_policed_run.py",
                                      "test_a_run_ends_where_the_budget_ends"),
    "the file is changed during a run": (OWN, "test_a_file_that_is_changed_is_not_asked_again"),
    "a file is not like the schema": ("tests/hazards/test_nodes_own_files.py",
                                      "test_a_file_unlike_the_schema_is_refused_without_a_value_of_it"),
    "nodes run another version of fedfair": (OWN, "test_another_program_ends_the_run_before_anything_is_released"),
}
"""The test of each line, by what happens: its file and its name."""


def test_every_line_of_the_table_has_its_test() -> None:
    page = (ROOT / "docs" / "tutorials" / "real-nodes.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \| ", page.partition("## What happens when")[2], re.MULTILINE)
    assert rows == list(LINES)
    for file, name in LINES.values():
        assert f"def {name}(" in (ROOT / file).read_text(), name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a node's folder, with its file, its schema and its policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SCHEMA)
    table(200).to_csv(tmp_path / "own.csv", index=False)
    write_policy(tmp_path, data=[entry()])
    return tmp_path


def entry(**changes: Any) -> dict[str, Any]:
    return {**POLICY["data"][0], "file": "own.csv", "task": {"partition": "nodes", "schema_file": "study.toml"},
            **changes}


def deployment(**settings: Any) -> Experiment:
    return Experiment(**{"mode": "deployment", "partition": "nodes", "schema_file": "study.toml", "strategy": "dpsgd",
                         "model": "logistic", "batch_size": 20, "steps": 3, **settings})


def released(folder: Path) -> NodeLedger:
    return NodeLedger(folder / "fedfair-node-ledger.jsonl")


def test_a_node_that_is_away_is_waited_for_and_then_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that is there knows that it is one of two."""
    monkeypatch.setattr(requests, "_NODES_WITHIN", 0.2)
    grid = LocalGrid(client_app.app, 2)
    grid._contexts.pop(3)
    with pytest.raises(ClientError, match=r"only 1 nodes are there after 0.2 s: start the others"):
        requests.population(grid, deployment().task)


def test_an_older_ledger_forgets_what_it_does_not_hold(folder: Path) -> None:
    """Nothing can tell: so the page says to keep ledgers with backups that only grow."""
    run(deployment(), Local())
    shutil.copy(folder / "fedfair-node-ledger.jsonl", folder / "older")
    run(deployment(), Local())
    assert sum(released(folder).released("patients").values()) == 6
    shutil.copy(folder / "older", folder / "fedfair-node-ledger.jsonl")
    assert sum(released(folder).released("patients").values()) == 3


def test_two_runs_at_once_add_up_and_stay_within_one_budget(folder: Path) -> None:
    """The budget has room for some rounds of both, and not for all: whoever comes first is answered."""
    write_policy(folder, data=[entry(largest_epsilon=6.0)])
    ended: list[str] = []

    def ask(label: str, rounds: int = 60) -> None:
        """Ask for local epochs, as a run does, until one is refused."""
        server = Server.new()
        for step in range(rounds):
            plan = ROUND.__class__(**{**vars(ROUND), "step": step, "label": label + str(step), "query": None,
                                      "count_noise_multiplier": None, "local": local(sizes=(TRAINED,))})
            model = deployment().task.build_model()
            weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
            said = server.reason("exchanges.send_local_epoch", task=deployment().task.text, plan=plan, weights=weights)
            if said:
                ended.append(said)
                return

    ask("first", 1)  # the model is tried once: two threads of one process would try one model at once
    both = [threading.Thread(target=ask, args=(name,)) for name in "ab"]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(ended) == 2
    assert all("its budget for these records would be exceeded" in said for said in ended), ended
    releases = released(folder).released("patients")
    assert 0 < spent(releases, 1e-5) <= 6
    assert released(folder).path.read_text().count("send_local_epoch") >= 2


def test_a_file_that_is_changed_is_not_asked_again(folder: Path) -> None:
    """In a run a node answers of the records that the run was planned for, and of no others."""
    server, task = Server.new(), deployment().task.text
    assert server.reason("exchanges.send_sizes", "query", task) == ""
    pd.concat([table(200), table(1, 5)]).to_csv(folder / "own.csv", index=False)
    assert "could not answer the request: its own log says why" in server.reason("exchanges.send_sizes", "query", task)
    assert Server.new().reason("exchanges.send_sizes", "query", task) == ""


def test_another_program_ends_the_run_before_anything_is_released(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_app, "program", lambda: "0.0.9 (source 0123456789ab)")
    client_app._node_record.cache_clear()
    with pytest.raises(ClientError, match=r"node 2 runs fedfair '0.0.9 .*', but the server runs 0.*: install the same"):
        run(deployment(), Local())
    client_app._node_record.cache_clear()
    assert not released(folder).path.exists()
