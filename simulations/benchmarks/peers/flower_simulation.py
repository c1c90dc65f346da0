"""Rounds of the same DP-FedAvg as Flower's users write it: a node for each participant, and `run_simulation`.

python -m simulations.benchmarks.peers.flower_simulation FOLDER COHORT ROUNDS

FOLDER holds x.npy and y.npy, 20 records of each participant one after the other.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch import nn

from simulations.benchmarks.people import BATCH, CLASSES, CLIP_NORM, FEATURES, LEARNING_RATE, NOISE, RECORDS

client = ClientApp()


class Timed(FedAvg):
    """Flower's FedAvg, which notes when each round ended."""

    def __init__(self, fraction: float, cohort: int) -> None:
        super().__init__(fraction, 0.0, cohort, 0, cohort)
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]
                        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """See `FedAvg`."""
        aggregated = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return aggregated


@lru_cache(maxsize=1)
def records(folder: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Map all records from their files, which the processes of a machine share."""
    x, y = (np.load(Path(folder) / f"{name}.npy", mmap_mode="c") for name in ("x", "y"))
    return torch.from_numpy(x), torch.from_numpy(y)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train an epoch of SGD from the weights of the message."""
    torch.set_num_threads(1)
    config = message.content.config_records["config"]
    start = int(context.node_config["partition-id"]) * RECORDS
    x, y = (part[start : start + RECORDS] for part in records(str(config["folder"])))
    model = nn.Linear(FEATURES, CLASSES)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for rows in torch.split(torch.randperm(RECORDS), BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    arrays = ArrayRecord({name: Array(value.numpy()) for name, value in model.state_dict().items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": RECORDS})})
    return Message(content, reply_to=message)


def main(folder: str, cohort: int, rounds: int) -> None:
    """Print the mean time of a round after the first, in which Ray starts its workers."""
    participants = len(np.load(Path(folder) / "y.npy", mmap_mode="r")) // RECORDS
    averaging = Timed(cohort / participants, cohort)
    strategy = DifferentialPrivacyServerSideFixedClipping(averaging, NOISE, CLIP_NORM, cohort)
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        """Run all rounds, from a new linear model."""
        model = nn.Linear(FEATURES, CLASSES)
        arrays = ArrayRecord({name: Array(value.numpy()) for name, value in model.state_dict().items()})
        strategy.start(grid, arrays, rounds, train_config=ConfigRecord({"folder": folder}))

    run_simulation(server, client, participants, backend_config={"client_resources": {"num_cpus": 1}})
    ends = averaging.ends
    print(json.dumps({"ms": (ends[-1] - ends[0]) / (len(ends) - 1) * 1000}))


if __name__ == "__main__":
    from simulations.benchmarks.peers import flower_simulation  # by its name, under which Ray's workers find it

    flower_simulation.main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
