"""A node with a policy and its data, and a server that asks it for what it likes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from torch import Tensor

from fedfair import client_app
from fedfair.accounting.events import Release
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.node_ledger import NodeLedger
from fedfair.protocol.messages import ACTION, pack
from fedfair.protocol.round import LocalTraining, Round
from fedfair.protocol.task import Task
from simulations.engines.local import LocalGrid

TASK: dict[str, Any] = {"csv": "patients.csv", "label": "ill", "group": "sex", "partition": "site", "clients": 1,
                        "ranges": {"age": [0, 100], "dose": [-5, 5]}}
POLICY: dict[str, Any] = {
    "exchanges": ["exchanges.send_sizes", "exchanges.send_counts", "exchanges.send_gradient_sum",
                  "exchanges.send_local_epoch", "exchanges.send_scores", "private_training.train_privately"],
    "exact_exchanges": ["exchanges.send_evaluation"], "evaluated_parts": ["test"],
    "rules": ["flat", "per-group", "global-adapt"], "queries": ["above-and-below", "group-sizes"],
    "models": ["logistic"],
    "data": [{"name": "patients", "largest_epsilon": 12.0, "delta": 1e-5, "smallest_noise_multiplier": 0.9,
              "task": TASK}],
}
TRAINED = 145
"""Rows of 200 that are in the training part with seed 0; each is dealt by itself."""
ROUND = Round(key=None, step=0, rates=(0.1, 0.1), noise_multiplier=1.0, trust=Trust.LOCAL, clients=1, rule=Flat(1.0),
              count_noise_multiplier=10.0, label="a")
LOCAL = LocalTraining(batch_size=20, optimizer="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.0,
                      noise_multipliers=(1.0,), weights=(1.0,), sizes=(TRAINED,))


def write_data(path: Path, seed: int = 0, records: int = 200) -> None:
    """Write a table of made-up patients."""
    draws = np.random.default_rng(seed)
    pd.DataFrame({"age": draws.integers(20, 90, records), "dose": draws.normal(size=records).round(3),
                  "sex": np.where(np.arange(records) % 4 == 3, "f", "m"), "ill": draws.integers(0, 2, records)
                  }).to_csv(path, index=False)


def write_policy(folder: Path, **changes: Any) -> Path:
    """Write a policy into a folder, where a node that runs there finds it."""
    path = folder / "fedfair-node.toml"
    path.write_text(tomli_w.dumps({**POLICY, **changes}))
    return path


@dataclass
class Server:
    """A server that talks to one node, in the current folder, in one run."""

    grid: LocalGrid

    @staticmethod
    def new() -> Server:
        """Return a server of a new run."""
        return Server(LocalGrid(client_app.app, 1))

    def ask(self, exchange: str, category: str = "train", task: str | None = None, plan: str | Round | None = None,
            weights: Mapping[str, Tensor] | None = None, **options: Any) -> RecordDict:
        """Send a request, and return the content of the answer."""
        records: dict[str, Any] = {"exchange": ConfigRecord({"name": exchange, "request": "r"}),
                                   "task": ConfigRecord({"json": task_text() if task is None else task})}
        if plan is not None:
            records["round"] = ConfigRecord({"json": plan if isinstance(plan, str) else plan.to_json()})
        if weights is not None:
            records["weights"] = pack(weights)
        if options:
            records["options"] = ConfigRecord(options)
        message = Message(RecordDict(records), dst_node_id=2, message_type=f"{category}.{ACTION}")
        (reply,) = self.grid.send_and_receive([message])
        return reply.content

    def reason(self, *args: Any, **kwargs: Any) -> str:
        """Send a request, and return why it is refused, or "" if it is answered."""
        content = self.ask(*args, **kwargs)
        return str(content.config_records["failure"]["reason"]) if "failure" in content else ""


def task_text(**changes: Any) -> str:
    """Return the task that the policy lists, or one that differs, as it travels."""
    return Task(**{**TASK, "model": "logistic", **changes}).text


def changed(**values: Any) -> str:
    """Return the listed task with values that were not validated."""
    return json.dumps({**json.loads(task_text()), **values})


def weights(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return weights of the model that the task names."""
    model = Task(**{**TASK, "model": "logistic"}).build_model()
    return {name: parameter.detach().to(dtype) for name, parameter in model.named_parameters()}


def round_(**changes: Any) -> Round:
    """Return a round that the policy allows, with changes."""
    return replace(ROUND, **changes)


def plan_with(**values: Any) -> str:
    """Return an allowed round in JSON with values that were not validated."""
    return json.dumps({**json.loads(ROUND.to_json()), **values})


def local(**changes: Any) -> LocalTraining:
    """Return a local epoch that the policy allows, with changes."""
    return replace(LOCAL, **changes)


def ledger(folder: Path, data: str = "patients") -> dict[Release, int]:
    """Return what the node of a folder has released of some records."""
    return dict(NodeLedger(folder / "fedfair-node-ledger.jsonl").released(data))
