"""Hazard 34: a node that obeys any plan. Every request here is answered without a policy, or was, and none with one."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.mechanisms.clipping import Global, Unclipped
from fedfair.mechanisms.counting import AboveAndBelow
from fedfair.node import node as node_module
from fedfair.node.policy import Refused
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import Round
from tests.for_each import for_each
from tests.hazards.dishonest_requests import (
    COUNTS,
    EPOCH,
    NOISE_REFUSED,
    OWN_EXCHANGE,
    OWN_MODEL,
    OWN_RULE,
    REQUESTS,
    SUM,
    evaluation,
    scores,
    sizes,
    training,
)
from tests.hazards.policed import (
    POLICY,
    TASK,
    TRAINED,
    Server,
    ledger,
    local,
    plan_with,
    round_,
    task_text,
    write_data,
    write_policy,
)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which a node runs, with data, and files that it must not open or run."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "patients.csv")
    pd.DataFrame({"name": [f"Person {i}" for i in range(60)], "birth": range(60), "salary": range(60)}).to_csv(
        "salaries.csv", index=False)
    Path("key").write_text("-----BEGIN KEY-----\nsecretsecret\n")
    Path("folder").mkdir()
    Path("link.csv").symlink_to("patients.csv")
    Path("models").mkdir()
    Path("models/leaky.py").write_text(OWN_MODEL)
    Path("leaky_rule.py").write_text(OWN_RULE)
    Path("leaky_exchange.py").write_text(OWN_EXCHANGE)
    return tmp_path


@for_each("name", [
    "no noise", "no clipping", "no noise and all records", "exact figures of training records",
    "a path around", "an absolute path", "a link", "a tiny range", "scaling by the records",
    "huge rounding of sizes", "another split", "noise of the server", "a small share of the noise", "noise of a seed",
    "claims of more noise than there is", "a tiny clip norm", "exact counts", "a local epoch without noise",
    "scores without noise", "risk terms", "an exchange in a file"])
def test_the_same_request_is_answered_where_there_is_no_policy(name: str, node: Path) -> None:
    """These are the attacks: each shows that the test below could fail."""
    assert REQUESTS[name][0]()(Server.new()) == ""


@pytest.mark.parametrize(("name", "cell"), [("another table", "birth"),
                                            ("another column as groups", "67 different values"),
                                            ("a file of another kind", "BEGIN KEY")])
def test_without_a_policy_a_refusal_quotes_records(name: str, cell: str, node: Path) -> None:
    """As it should where somebody works on data of their own."""
    assert cell in REQUESTS[name][0]()(Server.new())


def test_a_request_that_the_policy_does_not_list_is_refused_and_in_the_same_words_whatever_the_data(node: Path
                                                                                                    ) -> None:
    requests = {name: made() for name, (made, _) in REQUESTS.items()}
    write_policy(node)
    said = [{name: request(Server.new()) for name, request in requests.items()}]
    assert {name: words for name, (_, words) in REQUESTS.items() if words not in said[0][name]} == {}
    assert not Path("ran").exists()
    assert ledger(node) == {}
    for other in (lambda: write_data(node / "patients.csv", seed=1),
                  lambda: Path("salaries.csv").unlink(), lambda: Path("key").unlink()):
        other()
        said.append({name: request(Server.new()) for name, request in requests.items()})
    assert said[1:] == said[:-1]


def test_what_the_policy_lists_is_answered_and_entered(node: Path) -> None:
    write_policy(node)
    server = Server.new()
    assert sizes(task_text())(server) == ""
    assert training(round_())(server) == ""
    assert training(round_(local=local()), EPOCH)(server) == ""
    assert scores()(server) == ""
    assert evaluation("test")(server) == ""
    (sums, steps), (epoch, epochs), (searched, _) = ledger(node).items()
    assert (sums, steps) == ((0.1, 1.0), 1)
    assert (epoch.rate, epochs) == (20 / TRAINED, 7)
    assert epoch.multiplier == pytest.approx((1 + 1 / 100) ** -0.5)
    assert searched.rate == 1
    assert "send_evaluation" in Path("fedfair-node-ledger.jsonl").read_text()


@pytest.mark.parametrize("labels", [lambda i: f"{i}", lambda i: "a", lambda i: "ab"[i % 2]])
def test_noise_cannot_be_averaged_away(labels: Callable[[int], str], node: Path) -> None:
    """The same request under another label, under the same, in one run or in many: each is charged, from a new batch.

    Also a number of the round that goes back.
    """
    write_policy(node, data=[{**POLICY["data"][0], "largest_epsilon": 4.0}])
    servers, answered = [Server.new(), Server.new()], []
    for i in range(40):
        reason = training(round_(label=labels(i), step=5 - i % 3))(servers[i % 2])
        answered.append(reason == "")
        assert reason == "" or "budget" in reason
    assert 1 < sum(answered) < 40
    assert answered == sorted(answered, reverse=True)
    assert ledger(node) == {(0.1, 1.0): sum(answered)}


def test_a_batch_is_not_drawn_once_for_two_sums(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums over one batch cost more than two batches."""
    drawn, before = [], node_module.draw

    def counted(data: GroupedDataset, plan: Round) -> Tensor:
        drawn.append(plan.label)
        return before(data, plan)

    monkeypatch.setattr(node_module, "draw", counted)
    server = Server.new()
    assert [training(round_())(server) for _ in range(2)] == ["", ""]
    assert drawn == ["a"]
    write_policy(node)
    server = Server.new()
    assert [training(round_())(server) for _ in range(2)] == ["", ""]
    assert drawn[1:] == ["a", "a"]


def test_counts_are_charged_with_the_sum_that_follows_once(node: Path) -> None:
    write_policy(node)
    server, plan = Server.new(), round_(query=AboveAndBelow((1.0, 1.0)))
    assert training(plan, COUNTS)(server) == ""
    joint = (0.1, pytest.approx((1 + 1 / 100) ** -0.5))
    assert list(ledger(node).items()) == [(joint, 1)]
    assert training(round_())(server) == ""
    assert list(ledger(node).items()) == [(joint, 1)]
    assert training(round_())(server) == ""  # again: a new batch, charged
    assert list(ledger(node).values()) == [1, 1]


@pytest.mark.parametrize("then", [{"noise_multiplier": 1.0}, {"noise_multiplier": 5.0, "rates": (0.2, 0.1)},
                                  {"noise_multiplier": 5.0, "query": AboveAndBelow((1.0, 1.0))}])
def test_a_sum_that_breaks_what_its_counts_promised_is_charged_in_full(then: dict[str, Any], node: Path) -> None:
    write_policy(node)
    server = Server.new()
    assert training(round_(noise_multiplier=5.0, query=AboveAndBelow((1.0, 1.0))), COUNTS)(server) == ""
    assert training(round_(**then))(server) == ""
    assert sum(ledger(node).values()) == 2


def test_a_promise_is_of_one_run(node: Path) -> None:
    write_policy(node)
    assert training(round_(query=AboveAndBelow((1.0, 1.0))), COUNTS)(Server.new()) == ""
    assert training(round_())(Server.new()) == ""
    assert sum(ledger(node).values()) == 2


def test_a_promise_is_of_one_data_set(node: Path) -> None:
    """Counts of one file do not pay for the sum over another, at the rows that were drawn for the first."""
    write_data(node / "others.csv", seed=1)
    shutil.copystat("patients.csv", "others.csv")  # a run notices other dates, but built-in data have none
    others = {**POLICY["data"][0], "name": "others", "task": {**TASK, "csv": "others.csv"}}
    write_policy(node, data=[*POLICY["data"], others])
    server = Server.new()
    assert training(round_(query=AboveAndBelow((1.0, 1.0))), COUNTS)(server) == ""
    assert training(round_(), task=task_text(csv="others.csv"))(server) == ""
    assert (sum(ledger(node).values()), sum(ledger(node, "others").values())) == (1, 1)


def test_a_file_of_the_owners_own_runs_only_if_the_policy_says_so(node: Path) -> None:
    listed = {"exchanges": ["leaky_exchange.leak", SUM], "rules": ["flat", "leaky_rule.Leaky"]}
    write_policy(node, **listed)
    for request in (training(round_(), "leaky_exchange.leak"),
                    training(plan_with(rule={"kind": "leaky_rule.Leaky"}))):
        assert "does not run those" in request(Server.new())
    assert not Path("ran").exists()
    write_policy(node, **listed, own_files=True)
    assert training(round_(), "leaky_exchange.leak")(Server.new()) == ""
    assert Path("ran").exists()


def test_errors_leave_the_node_without_cells_and_paths(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_policy(node)
    table = pd.read_csv("patients.csv").astype({"age": object})
    table.loc[3, "age"] = "secret-cell"
    table.to_csv("patients.csv", index=False)
    with caplog.at_level(logging.ERROR):
        answer = sizes(task_text())(Server.new())
    assert answer == "node 0 could not answer the request: its own log says why"
    assert "secret-cell" in caplog.text or "age" in caplog.text
    Path("patients.csv").unlink()
    assert sizes(task_text())(Server.new()) == answer


@pytest.mark.parametrize("text", ["not toml [", 'colour = "red"', "data = []"])
def test_a_policy_that_cannot_be_read_lets_nothing_through(text: str, node: Path) -> None:
    write_policy(node).write_text(text)
    assert "could not answer" in sizes(task_text())(Server.new())


def test_a_policy_that_is_named_but_not_there_lets_nothing_through(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFAIR_NODE_POLICY", str(node / "none.toml"))
    assert "could not answer" in sizes(task_text())(Server.new())


def test_the_key_that_comes_twice_is_read_once(node: Path) -> None:
    """A task whose model is "logistic" to one parser and "leaky" to another."""
    write_policy(node)
    text = task_text()
    for twice in (text[:-1] + ', "model": "logistic", "csv": "patients.csv"}', '{"model": "leaky", ' + text[1:]):
        assert sizes(twice)(Server.new()) == ""
        assert not Path("ran").exists()
    assert "list this model" in sizes(text[:-1] + ', "model": "leaky"}')(Server.new())


def existing_app(plan: str, **more: Any) -> dict[str, Any]:
    x, y = torch.randn(140, 3, generator=torch.Generator().manual_seed(0)), torch.arange(140) % 2
    return train_privately(nn.Linear(3, 2), x, y, torch.zeros(140), plan, **more)


def test_an_existing_app_trains_by_its_nodes_policy(node: Path) -> None:
    honest = round_(rates=(1.0,), local=local())
    plans = {"noise 0": (round_(rates=(1.0,), local=local(noise_multipliers=(0.0,))), NOISE_REFUSED),
             "noise 0, rule none, batch of all": (
                 round_(rates=(1.0,), rule=Unclipped(), local=local(noise_multipliers=(0.0,), batch_size=10**6)),
                 "list this clip rule"),
             "batch of all": (round_(rates=(1.0,), local=local(batch_size=10**6)), "sampling rate"),
             "a rule in a file": (json.dumps({**json.loads(honest.to_json()), "rule": {"kind": "leaky_rule.Leaky"}}),
                                  "list this clip rule")}
    for plan, _ in list(plans.values())[:3]:
        assert existing_app(plan.to_json())["size"] == 140
    write_policy(node)
    for plan, said in plans.values():
        with pytest.raises(Refused, match=said):
            existing_app(plan if isinstance(plan, str) else plan.to_json())
    with pytest.raises(Refused, match="does not list these data"):
        existing_app(honest.to_json(), data="others")
    assert not Path("ran").exists()
    assert existing_app(honest.to_json(), data="patients")["size"] == 140
    assert sum(ledger(node).values()) == 7
    write_policy(node, data=[{**POLICY["data"][0], "largest_epsilon": 0.1}])
    with pytest.raises(Refused, match="budget"):
        existing_app(honest.to_json())


def test_a_rule_that_drops_long_gradients_is_refused_where_it_is_not_listed(node: Path) -> None:
    write_policy(node)
    assert "list this clip rule" in training(round_(rule=Global(1.0, 1.0)))(Server.new())
