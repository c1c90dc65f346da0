"""A server that wants to learn from refusals what a node's own file holds (after `attacks/malicious_server.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from fedfair import client_app
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack, unpack
from fedfair.protocol.task import Task
from simulations.engines.engines import Local
from simulations.engines.local import LocalGrid
from simulations.engines.run import run
from simulations.settings.experiment import Experiment
from strategies.dpsgd import Dpsgd
from strategies.server.replies import requests
from strategies.server.training import Training
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.for_each import for_each
from tests.hazards.policed import POLICY, Server, ledger, local, round_, write_policy

ENTRY: dict[str, Any] = {**POLICY["data"][0], "file": "own.csv",
                         "task": {"partition": "nodes", "schema_file": "study.toml"}}
OPEN = {"data": [ENTRY], "evaluated_parts": ["train", "valid", "test"], "models": ["logistic"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a node's folder, with its file, its schema and its policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SCHEMA)
    table(200).to_csv(tmp_path / "own.csv", index=False)
    write_policy(tmp_path, **OPEN)
    return tmp_path


def asked(**changes: Any) -> str:
    """Return the task of the agreed schema, with values that were not validated."""
    task = Task(partition="nodes", schema_file="study.toml", model="logistic")
    return json.dumps({**json.loads(task.text), **changes})


def test_the_agreed_task_is_answered_from_the_nodes_own_file(folder: Path) -> None:
    content = Server.new().ask("exchanges.send_sizes", "query", asked())
    assert int(content["sizes"]["train"].numpy().sum()) == 145
    made = Experiment(partition="nodes", schema_file="study.toml", strategy="dpsgd", model="logistic", steps=2,
                      batch_size=14, trust="local", randomness="system", noise_multiplier=1.0)
    assert run(made, Local()).ledger.guarantee == "proved"
    assert sum(ledger(folder).values()) == 2


PROBES: dict[str, dict[str, Any]] = {
    "a category left out, to see whether it occurs": {"categories": [["job", ["clerk"]], ["sex", ["f", "m"]],
                                                                     ["ill", ["no", "yes"]]]},
    "a group of one name, to count the others": {"categories": [["job", ["clerk", "cook", "nurse"]],
                                                                ["sex", ["f", "x"]], ["ill", ["no", "yes"]]]},
    "another column of the file": {"ranges": [["age", 18.0, 80.0], ["income", 0.0, 1.0]]},
    "a narrow range, to see one record": {"ranges": [["age", 33.0, 34.0]]},
    "another label": {"label": "job"},
    "another group": {"group": "job"},
    "gaps dropped": {"missing": "drop"},
    "a path": {"csv": "/etc/passwd"},
    "a path, as any table": {"csv": "own.csv", "partition": "site"},
    "another split": {"split": [0.1, 0.1, 0.8]},
    "another seed": {"seed": 1},
    "a participant": {"participant": "job"},
}


@for_each("probe", PROBES)
def test_probes_are_refused_in_words_that_no_file_changes(probe: str, folder: Path) -> None:
    """The schema is in the policy: another one is refused before the file is opened."""
    words = []
    for records in (200, 300):
        table(records, records).to_csv(folder / "own.csv", index=False)
        words.append(Server.new().reason("exchanges.send_sizes", "query", asked(**PROBES[probe])))
    (folder / "own.csv").unlink()
    words.append(Server.new().reason("exchanges.send_sizes", "query", asked(**PROBES[probe])))
    assert words[0].startswith("node 0 refuses the request: its policy does not list this task")
    assert len(set(words)) == 1


def test_a_file_unlike_the_schema_is_refused_without_a_value_of_it(folder: Path) -> None:
    """One sentence before any run, the same for all such files; the server can ask for no other schema."""
    words = set()
    for stray in ("Zaphod", "Trillian"):
        frame = table(200)
        frame.assign(job=[stray, *frame.job[1:]]).to_csv(folder / "own.csv", index=False)
        words.add(Server.new().reason("exchanges.send_sizes", "query", asked()))
    (said,) = words
    assert "its file is not like the schema: job has values that the schema does not list" in said
    assert ledger(folder) == {}


@pytest.mark.parametrize("broken", ["not,a\ntable", "", "age,job,sex,ill\n"])
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(broken: str, folder: Path) -> None:
    (folder / "own.csv").write_text(broken)
    said = Server.new().reason("exchanges.send_sizes", "query", asked())
    assert "not,a" not in said
    assert said.startswith(("node 0 could not answer the request", "node 0 refuses the request: its file is not like"))


REQUESTS: dict[str, Any] = {
    "no noise": {"plan": lambda: round_(noise_multiplier=0.0)},
    "noise of the server's": {"plan": lambda: round_(noise_multiplier=1.0, trust=Trust.CENTRAL)},
    "shares of a thousand": {"plan": lambda: round_(trust=Trust.DISTRIBUTED, clients=1000)},
    "all records": {"plan": lambda: round_(rates=(1.0, 1.0))},
    "a seed": {"plan": lambda: round_(key="1")},
    "a rule without bound": {"plan": lambda: round_(rule=Flat(1e12))},
    "three groups": {"plan": lambda: round_(rates=(0.1, 0.1, 0.1))},
    "a model with code": {"task": lambda: asked(model="evil")},
    "weights of another model": {"weights": lambda: {"x": torch.zeros(2, 4)}},
    "an epoch without end": {"exchange": "exchanges.send_local_epoch",
                             "plan": lambda: round_(local=local(sizes=(10**9,)))},
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_ten_requests_get_refusals_that_no_file_changes(request_: str, folder: Path) -> None:
    wanted = {name: made() if callable(made) else made for name, made in REQUESTS[request_].items()}
    words = []
    for seed in (0, 1):
        table(200, seed).to_csv(folder / "own.csv", index=False)
        model = {name: parameter.detach() for name, parameter in
                 Task.model_validate_json(asked()).build_model().named_parameters()}
        parts = {"task": asked(), "plan": round_(), "weights": model, **wanted}
        words.append(Server.new().reason(parts.pop("exchange", "exchanges.send_gradient_sum"), **parts))
    assert words[0].startswith("node 0 refuses the request"), words[0]
    assert words[0] == words[1]
    assert ledger(folder) == {}


def lying(lie: Callable[[RecordDict], Any]) -> LocalGrid:
    """Return a grid of three nodes with the folder's file, all of which lie when they tell their sizes."""

    class All(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            replies = list(super().send_and_receive(messages))
            for reply in replies:
                lie(reply.content)
            return replies

    return All(client_app.app, 3)


def names(**changed: list[str]) -> Callable[[RecordDict], Any]:
    return lambda content: content.__setitem__("groups", ConfigRecord({**content["groups"], **changed}))


def two_clients(content: RecordDict) -> None:
    """Say that the node holds another client, whose share of the noise nobody adds."""
    content["node"] = ConfigRecord({**content["node"], "clients": 2})
    content["sizes"] = pack({part: torch.cat([told, told]) for part, told in unpack(content, "sizes").items()})


@pytest.mark.parametrize(("lie", "said"), [
    (names(names=["f", "x"]), r"node 2 tells .*'x'.* which are not those of the schema"),
    (names(names=["m", "f"]), "are not those of the schema"),
    (names(labels=["yes", "no"]), "are not those of the schema")])
def test_nodes_that_agree_on_another_study_are_named(lie: Callable[[RecordDict], Any], said: str,
                                                     folder: Path) -> None:
    """Even if all of them do: the schema is the server's too."""
    task = Task(partition="nodes", schema_file="study.toml", model="logistic")
    with pytest.raises(ClientError, match=said):
        requests.population(lying(lie), task)
    assert requests.population(lying(lambda content: None), task).names == ("f", "m")


def test_a_site_that_is_made_up_takes_no_share_of_the_noise(folder: Path) -> None:
    """Where clients share the noise, no node may say that it holds several."""
    task = Task(partition="nodes", schema_file="study.toml", model="logistic")
    told = requests.population(lying(two_clients), task)
    with pytest.raises(ValueError, match='node 2 holds 2 sites as clients, and trust is "distributed"'):
        Dpsgd(task, Training(batch_size=20, trust=Trust.DISTRIBUTED), told)
    assert Dpsgd(task, Training(batch_size=20, trust=Trust.LOCAL), told).population.by_client
