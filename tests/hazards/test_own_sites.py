"""A server that wants to learn more of a node's own sites than its policy allows, and nodes that lie of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedfair import client_app
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.moments.sums import SENSITIVITY
from fedfair.node.node import ClientError
from fedfair.protocol.messages import ACTION, CLIENTS
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from simulations.engines.engines import Local
from simulations.engines.local import LocalGrid
from simulations.engines.run import run
from simulations.settings.experiment import Experiment
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.for_each import for_each
from tests.hazards.policed import POLICY, ledger, write_policy

WARDS = 4
TASK: dict[str, Any] = {"partition": "nodes", "schema_file": "study.toml", "features": "binned"}
ENTRY: dict[str, Any] = {**POLICY["data"][0], "file": "own.csv", "site": "ward", "largest_sampling_rate": 1.0,
                         "task": TASK}
OPEN = {"data": [ENTRY], "models": ["linear"], "exchanges": [
    "exchanges.send_sizes", "moment_sums.send_moments", "moment_sums.send_participant_moments"]}
ROUND = Round(key=None, step=0, rates=(1.0, 1.0), noise_multiplier=1.0, trust=Trust.LOCAL, clients=WARDS,
              rule=Flat(SENSITIVITY), label="a")
NUMBERS = {"first": 0, "of": WARDS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a node's folder, with a file of four wards, its schema and its policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SCHEMA)
    frame = table(200)
    frame.assign(ward=[f"Zaphod-{row % WARDS}" for row in range(len(frame))]).to_csv(tmp_path / "own.csv", index=False)
    write_policy(tmp_path, **OPEN)
    return tmp_path


def sent(records: dict[str, ConfigRecord], category: str) -> RecordDict:
    """Send records to the node, and return the content of its answer."""
    grid = LocalGrid(client_app.app, 1)
    (reply,) = grid.send_and_receive([Message(RecordDict(dict(records)), 2, f"{category}.{ACTION}")])
    return reply.content


def ask(exchange: str, category: str, numbers: dict[str, Any] | None, **options: Any) -> RecordDict:
    """Send the node a request as a server can write it, and return the content of its answer."""
    records = {"exchange": ConfigRecord({"name": exchange, "request": "r"}),
               "task": ConfigRecord({"json": Task(**TASK, model="linear").text})}
    records |= {CLIENTS: ConfigRecord(numbers)} if numbers else {}
    if options:
        records |= {"round": ConfigRecord({"json": ROUND.to_json()}), "options": ConfigRecord(options)}
    return sent(records, category)


@pytest.mark.parametrize("held", [[1, 0, 0, 0, 0, 0, 0, 1], [1, 1, 1, 0, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 0, 0]])
def test_a_node_counts_on_the_noise_of_the_sites_that_add_it(folder: Path, held: list[int]) -> None:
    """Numbers of a group of which one site is to send get the noise of one site, not of four."""
    content = ask("moment_sums.send_moments", "train", NUMBERS, groups=2, held=held, **{"by-group": True})
    assert "sums" in content, content
    (release,) = ledger(folder)
    assert release.multiplier == pytest.approx(1.0, rel=1e-3)


def test_where_all_sites_send_all_groups_their_noise_adds_up(folder: Path) -> None:
    ask("moment_sums.send_moments", "train", NUMBERS, groups=2, held=[1] * 8, **{"by-group": True})
    (release,) = ledger(folder)
    assert release.multiplier == pytest.approx(2.0, rel=1e-3)


def test_a_record_is_charged_twice_what_its_participant_is(folder: Path) -> None:
    """One record turns its clipped sums by up to twice the clip norm: for a record that is half of the noise."""
    ask("moment_sums.send_participant_moments", "train", NUMBERS, groups=2, **{"by-group": False})
    (release,) = ledger(folder)
    assert release.multiplier == pytest.approx(1.0, rel=1e-3)  # of four wards with one full noise each, halved


@for_each("numbers", [{"first": -1, "of": 4}, {"first": 4, "of": 4}, {"first": 0, "of": 10**12},
                      {"first": "a", "of": 4}, {"first": 0.5, "of": 4}, {"first": True, "of": 4}, {"of": 4}])
def test_numbers_that_cannot_be_are_refused(folder: Path, numbers: dict[str, Any]) -> None:
    content = ask("moment_sums.send_moments", "train", numbers, groups=2, held=[1] * 8, **{"by-group": True})
    assert "failure" in content
    assert not (folder / "fedfair-node-ledger.jsonl").exists()


def test_numbers_beyond_what_the_server_says_of_clients_release_nothing(folder: Path) -> None:
    content = ask("moment_sums.send_moments", "train", {"first": 3, "of": 4}, groups=2, held=[1] * 8,
                  **{"by-group": True})
    assert "sums" not in content
    assert "Zaphod" not in str(content)


def test_nothing_of_the_column_leaves_but_the_sizes(folder: Path) -> None:
    content = ask("exchanges.send_sizes", "query", None)
    assert content["node"]["clients"] == WARDS
    assert content["sizes"]["train"].numpy().sum() == 145
    assert "ward" not in str(content)
    assert "Zaphod" not in str(content)


def test_a_site_of_a_single_record_is_refused_before_anything_is_told(folder: Path) -> None:
    frame = pd.read_csv(folder / "own.csv")
    wards = [f"Zaphod-{row}" for row in range(100)]
    frame.assign(ward=[*wards, *wards]).to_csv(folder / "own.csv", index=False)
    content = ask("exchanges.send_sizes", "query", None)
    assert "one of its sites may have a single training record" in str(content["failure"]["reason"])
    assert "Zaphod" not in str(content)
    assert "sizes" not in content


def test_a_server_cannot_name_the_column(folder: Path) -> None:
    write_policy(folder, **{**OPEN, "data": [{name: value for name, value in ENTRY.items() if name != "site"}]})
    text = Task(**TASK, model="linear").text.replace('"site":null', '"site":"sex"')
    assert '"site":"sex"' in text
    content = sent({"exchange": ConfigRecord({"name": "exchanges.send_sizes", "request": "r"}),
                    "task": ConfigRecord({"json": text})}, "query")
    assert "its policy does not list this task" in str(content["failure"]["reason"])


@pytest.mark.parametrize(("lie", "words"), [
    ({"clients": 0}, "are expected"), ({"clients": 10**7}, "sizes"),
    ({"first": 0}, "answers for client"), ({"clients": 3}, "answers for client")])
def test_a_node_that_lies_of_its_sites_ends_the_run_by_its_number(lie: dict[str, int], words: str, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.toml").write_text(SCHEMA)
    files = []
    for number in range(2):
        frame = table(80, number)
        files.append(str(tmp_path / f"node{number}.csv"))
        frame.assign(ward=[f"w{row % 2}" for row in range(len(frame))]).to_csv(files[-1], index=False)
    honest = client_app._node_record  # what a node writes of itself

    def lying(number: int, nodes: int, clients: int, first: int | None) -> ConfigRecord:
        """Lie at node 1: of its clients, from the start or after its first word."""
        record = ConfigRecord(dict(honest(number, nodes, clients, first)))
        if number == 1 and (first is not None or lie.get("clients") in (0, 10**7)):
            record.update(lie)
        return record

    monkeypatch.setattr(client_app, "_node_record", lying)
    made = Experiment(partition="nodes", schema_file=str(tmp_path / "study.toml"), strategy="dpsgd", model="logistic",
                      batch_size=20, steps=2)
    with pytest.raises(ClientError, match=words) as refused:
        run(made, Local(files=tuple(files), site="ward"))
    assert "node 3" in str(refused.value) or "client" in str(refused.value)
