"""Real SuperNodes without keys, of an existing app, that are all started again in the middle of a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.guard import wait_until
from tests.ports import free_ports
from tests.simulations.engines.runtime import ONE_AT_A_TIME, superlink, supernode

pytestmark = [pytest.mark.slow, ONE_AT_A_TIME]

NODES, ROUNDS = 2, 4
PROJECT = """
[project]
name = "again"
version = "1.0.0"

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "again:server"
clientapp = "again:client"

[tool.flwr.app.config]
folder = ""
"""
APP = """
import json
import time
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from fedfair import PrivateTraining, train_privately

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x = torch.ones(60 + 40 * int(context.node_config["partition-id"]), 3)
    zeros = torch.zeros(len(x), dtype=torch.long)
    returned = train_privately(model, x, zeros, zeros, str(message.content["fedfair"]["plan"]),
                               name=str(context.node_config.get("name", "")))
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})})
    content["fedfair"] = ConfigRecord(returned)
    return Message(content, reply_to=message)


class Waiting(FedAvg):
    def __init__(self, folder, **settings):
        super().__init__(**settings)
        self.folder, self.seen = folder, set()

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 3:
            (self.folder / "waits").touch()
            while not (self.folder / "again").exists():
                time.sleep(0.2)
        asked = list(super().configure_train(server_round, arrays, config, grid))
        self.seen |= {message.metadata.dst_node_id for message in asked}
        return asked


@server.main()
def main(grid, context):
    folder = Path(str(context.run_config["folder"]))
    inner = Waiting(folder, fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy = PrivateTraining(inner, ("all",), "dpsgd", batch_size=20, learning_rate=0.5, clip_norm=1.0, delta=1e-4,
                               noise_multiplier=1.0)
    try:
        strategy.start(grid, ArrayRecord(torch.nn.Linear(3, 2).state_dict()), num_rounds=ROUNDS, timeout=600)
    finally:
        steps = [[entry.event.client, entry.event.rates[0], entry.steps] for entry in strategy.ledger.log.entries]
        (folder / "told.json").write_text(json.dumps({"steps": steps, "size": strategy.ledger.size,
                                                      "ids": len(inner.seen)}))
""".replace("ROUNDS", str(ROUNDS))


@pytest.mark.parametrize("known_by", ["name", "nothing"])
def test_a_node_that_is_started_again_is_the_same_or_is_refused(deployment: dict[str, str], tmp_path: Path,
                                                               known_by: str) -> None:
    link, *ports = free_ports(1 + 2 * NODES)
    app, server = tmp_path / "app", tmp_path / "server"
    for folder in (app, server):
        folder.mkdir()
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "again.py").write_text(APP)
    processes = [superlink(link, deployment, server)]

    def start_nodes() -> list[subprocess.Popen[str]]:
        """Start all SuperNodes."""
        return [supernode(number, link, ports.pop(), deployment, tmp_path / f"node{number}.log", NODES, tmp_path,
                          f'name="ward-{number}"' if known_by == "name" else "") for number in range(NODES)]

    nodes = start_nodes()
    with (tmp_path / "run.log").open("w") as log:
        running = subprocess.Popen(["flwr", "run", str(app), "own", "--stream", "--run-config",
                                    f"folder={json.dumps(str(tmp_path))}"], env=deployment, cwd=tmp_path, stdout=log,
                                   stderr=log, text=True)
    wait_until((tmp_path / "waits").exists, running)
    for node in nodes:
        node.terminate()
        node.wait()
    processes += start_nodes()
    (tmp_path / "again").touch()
    running.wait()
    said = (tmp_path / "run.log").read_text()
    for process in reversed(processes):
        process.terminate()
        process.wait()
    told = json.loads((tmp_path / "told.json").read_text())
    rounds = 2 if known_by == "nothing" else ROUNDS
    assert sorted(steps for _, _, steps in told["steps"]) == [3 * rounds, 5 * rounds], said[-3000:]
    assert sorted(rate for _, rate, _ in told["steps"]) == [20 / 100, 20 / 60]
    assert told["size"] == 60 + 100
    assert told["ids"] == 2 * NODES
    assert ("came after the run began; a node without a key" in " ".join(said.split())) is (known_by == "nothing")
