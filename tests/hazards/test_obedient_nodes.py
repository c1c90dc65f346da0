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
from fedfair.mechanisms.clipping import Flat, Global, Unclipped
from fedfair.mechanisms.counting import AboveAndBelow, AtMost, GroupSizes
from fedfair.mechanisms.noise import Trust
from fedfair.node import node as node_module
from fedfair.node.policy import Refused
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import Round
from tests.hazards.policed import (
    POLICY,
    TASK,
    TRAINED,
    Server,
    changed,
    ledger,
    local,
    plan_with,
    round_,
    task_text,
    weights,
    write_data,
    write_policy,
)

SIZES, COUNTS, SUM = "exchanges.send_sizes", "exchanges.send_counts", "exchanges.send_gradient_sum"
EPOCH, SCORES, EVALUATION = "exchanges.send_local_epoch", "exchanges.send_scores", "exchanges.send_evaluation"
Request = Callable[[Server], str]

OWN_RULE = '''
open("ran", "w").close()

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaky:
    def coefficients(self, norms, groups):
        return norms * 0 + 1e6

    def group_sensitivities(self, groups):
        return (1e-6,) * groups
'''
OWN_MODEL = '''
open("ran", "w").close()

def leaky(shape, hidden, classes):
    raise ValueError("built")
'''
OWN_EXCHANGE = '''
open("ran", "w").close()

from flwr.app import RecordDict

from fedfair.protocol.exchange import Promise, exchange
from fedfair.protocol.messages import pack


@exchange("train", lambda node, request, trusts: Promise(None))
def leak(node, request):
    return RecordDict({"x": pack({"x": node.clients.together.train.x})})
'''


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


def training(plan: Any, exchange: str = SUM, **more: Any) -> Request:
    category = "query" if exchange in (COUNTS, SCORES) or "risk" in exchange else "train"
    return lambda server: server.reason(exchange, category, plan=plan, weights=weights(), **more)


def per_group(*clip_norms: float) -> dict[str, Any]:
    """Return a rule as it travels: no honest server could make it."""
    return {"kind": "per-group", "clip_norms": clip_norms}


def sizes(task: str) -> Request:
    return lambda server: server.reason(SIZES, "query", task=task)


def evaluation(*splits: str) -> Request:
    return lambda server: server.reason(EVALUATION, "evaluate", weights=weights(), splits=list(splits), threshold="",
                                        **{"gradient-norms": True})


def scores(**options: Any) -> Request:
    asked = {"favourable": 1, "noise": "gaussian", "deviation": 20.0, "key": "", **options}
    return lambda server: server.reason(SCORES, "query", weights=weights(), **asked)


TASK_REFUSED, NOISE_REFUSED = "does not list this task", "smallest noise multiplier, 0.9"
REQUESTS: dict[str, tuple[Callable[[], Request], str]] = {
    # abort.py and malicious_server.py
    "no noise": (lambda: training(round_(noise_multiplier=0.0)), NOISE_REFUSED),
    "no clipping": (lambda: training(round_(noise_multiplier=0.0, rule=Unclipped())), "does not list this clip rule"),
    "no noise and all records": (lambda: training(round_(rates=(1.0, 1.0))), "sampling rate is above"),
    "a file of another kind": (lambda: sizes(changed(csv="key", dataset="key")), TASK_REFUSED),
    "another table": (lambda: sizes(task_text(csv="salaries.csv", label="salary", group="name")), TASK_REFUSED),
    "a file of the system": (lambda: sizes(changed(csv="/etc/passwd", dataset="passwd")), TASK_REFUSED),
    "no file": (lambda: sizes(changed(csv="/nowhere", dataset="nowhere")), TASK_REFUSED),
    "exact figures of training records": (lambda: evaluation("train"), "does not list these parts"),
    "a model in a file": (lambda: sizes(changed(model="leaky")), "does not list this model"),
    "a model outside": (lambda: sizes(changed(model="../evil")), "does not list this model"),
    "a data set of the hub": (lambda: sizes(changed(csv=None, dataset="hf:private")), TASK_REFUSED),
    # of the same kind
    "a path around": (lambda: sizes(changed(csv="folder/../patients.csv")), TASK_REFUSED),
    "an absolute path": (lambda: sizes(changed(csv=str(Path("patients.csv").absolute()))), TASK_REFUSED),
    "a link": (lambda: sizes(changed(csv="link.csv", dataset="link")), TASK_REFUSED),
    "another column as groups": (lambda: sizes(task_text(group="age")), TASK_REFUSED),
    "another column as labels": (lambda: sizes(task_text(label="dose")), TASK_REFUSED),
    "a tiny range": (lambda: sizes(task_text(ranges={"age": [50, 50.001], "dose": [-5, 5]})), TASK_REFUSED),
    "scaling by the records": (lambda: sizes(task_text(ranges=None)), TASK_REFUSED),
    "columns left out": (lambda: sizes(task_text(without=["dose"])), TASK_REFUSED),
    "huge rounding of sizes": (lambda: sizes(task_text(round_sizes=10**6)), TASK_REFUSED),
    "another split": (lambda: sizes(task_text(seed=7)), TASK_REFUSED),
    "a tiny training part": (lambda: sizes(task_text(split=(0.01, 0.0, 0.99))), TASK_REFUSED),
    "an unknown field": (lambda: sizes(changed(more=1)), TASK_REFUSED),
    "no task": (lambda: sizes("[]"), "could not answer"),
    "half of a task": (lambda: sizes('{"csv": "patients.csv"}'), TASK_REFUSED),
    "a clip rule in a file": (lambda: training(plan_with(rule={"kind": "leaky_rule.Leaky"})), "list this clip rule"),
    "a query in a file": (lambda: training(plan_with(query={"kind": "leaky_rule.Leaky"})), "list this count query"),
    "an exchange in a file": (lambda: training(round_(), "leaky_exchange.leak"), "does not list this exchange"),
    "a function that is no exchange": (lambda: training(round_(), "policy.read_policy"), "list this exchange"),
    "a query that is not listed": (lambda: training(round_(query=AtMost(1.0)), COUNTS), "list this count query"),
    "noise of the server": (lambda: training(round_(trust=Trust.CENTRAL)), NOISE_REFUSED),
    "a small share of the noise": (lambda: training(round_(trust=Trust.DISTRIBUTED, clients=100)), NOISE_REFUSED),
    "claims of more noise than there is": (lambda: training(round_(
        noise_multiplier=0.1, planned_multipliers=(9.0, 9.0), spent_multipliers=(9.0, 9.0),
        certain_multipliers=(9.0, 9.0))), NOISE_REFUSED),
    "noise of a seed": (lambda: training(round_(key="3")), "from a seed"),
    "negative noise": (lambda: training(plan_with(noise_multiplier=-5.0)), "noise_multiplier of the round is -5.0"),
    "noise that is no number": (lambda: training(plan_with(noise_multiplier=float("nan"))), "the round is nan"),
    "a negative clip norm": (lambda: training(plan_with(rule=per_group(1.0, -1e6))), "clip_norms of the clip rule"),
    "a negative weight": (lambda: training(plan_with(rule={
        "kind": "reweighted", "clip_norms": [1.0, 1.0], "weights": [1.0, -1e6]})), "list this clip rule"),
    "a clip norm of zero": (lambda: training(plan_with(rule=per_group(1.0, 0.0))), "clip_norms of the clip rule"),
    "a bound of zero": (lambda: training(plan_with(rule={"kind": "global-adapt", "clip_norm": 1.0, "bound": 0.0})),
                        "bound of the clip rule GlobalAdapt is 0.0"),
    "a clip norm without end": (lambda: training(plan_with(rule={"kind": "flat", "clip_norm": float("inf")})),
                              "clip_norm of the clip rule Flat is inf"),
    "a tiny clip norm": (lambda: training(round_(rule=Flat(1e-20))), "clip_norm that is not between"),
    "a clip norm below floats": (lambda: training(plan_with(rule={"kind": "flat", "clip_norm": 1e-44})),
                                 "clip_norm of the clip rule Flat is 1e-44"),
    "clip norms for one group": (lambda: training(plan_with(rule=per_group(1.0))), "(1.0,) for 2 groups"),
    "thresholds for one group": (lambda: training(plan_with(
        query={"kind": "above-and-below", "thresholds": [1.0]}), COUNTS),
                                 "one number for each of the 2 groups"),
    "rates for one group": (lambda: training(round_(rates=(0.1,), query=GroupSizes()), COUNTS), "number of groups"),
    "a rate above 1": (lambda: training(plan_with(rates=[7.0, 0.1])), "rates of the round is (7.0, 0.1)"),
    "exact counts": (lambda: training(round_(query=GroupSizes(), count_noise_multiplier=0.0), COUNTS), NOISE_REFUSED),
    "exact counts beside the sum": (lambda: training(round_(query=GroupSizes(), count_noise_multiplier=0.0)),
                                    NOISE_REFUSED),
    "no plan": (lambda: training(None), "node cannot account for this round"),
    "a plan without a rule": (lambda: training(round_(rule=None)), "no clip rule"),
    "a local epoch without noise": (lambda: training(round_(local=local(noise_multipliers=(0.0,))), EPOCH),
                                    NOISE_REFUSED),
    "a local epoch of one batch": (lambda: training(round_(local=local(batch_size=10**6)), EPOCH), "sampling rate"),
    "a local epoch without end": (lambda: training(round_(local=local(sizes=(10**12,))), EPOCH), "than the node told"),
    "a local epoch for nobody": (lambda: training(round_(local=local(sizes=())), EPOCH), "could not answer"),
    "scores without noise": (lambda: scores(deviation=0.0), NOISE_REFUSED),
    "scores with noise of a seed": (lambda: scores(key="3"), "node cannot account for this round"),
    "scores with noise that is no number": (lambda: scores(deviation=float("nan")), NOISE_REFUSED),
    "risk terms": (lambda: training(round_(trust=Trust.CENTRAL), "risk_sums.send_clipping_effect"), "list this exc"),
    "sums of FairLens": (lambda: training(round_(trust=Trust.CENTRAL), "fairlens_sums.send_batch_sums"), "list this"),
    "exact figures of an attribute": (lambda: evaluation("test", "names"), "does not list these parts"),
    "half-precision weights": (lambda: lambda server: server.reason(
        SUM, plan=round_(), weights=weights(torch.float16)), "weights are not those of the model"),
    "weights of another model": (lambda: lambda server: server.reason(
        SUM, plan=round_(), weights={"0.weight": torch.zeros(3)}), "weights are not those of the model"),
}


@pytest.mark.parametrize("name", [
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
