"""Requests that no honest server makes: each is answered without a policy, or was, and none with one (hazard 34)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedfair.mechanisms.clipping import Flat, Unclipped
from fedfair.mechanisms.counting import AtMost, GroupSizes
from fedfair.mechanisms.noise import Trust
from tests.hazards.policed import (
    Server,
    changed,
    local,
    plan_with,
    round_,
    task_text,
    weights,
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
