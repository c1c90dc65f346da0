"""Rounds of dp-fedavg on this program's engines.

python -m simulations.benchmarks.peers.ours --participants 80000 --cohort 800 --rounds 50 [--workers 2]
"""

from __future__ import annotations

import json
import logging
from typing import Annotated

import ray
import torch
import typer

from simulations.benchmarks.people import experiment
from simulations.benchmarks.round import federated
from simulations.engines.engines import Engine, Local, Ray

Workers = Annotated[int, typer.Option(min=0, help="Ray actors; 0 runs in this process.")]
HOOK = "simulations.benchmarks.people.register"  # called in every worker, where these data sets are unknown


def main(participants: int = 80_000, cohort: int = 800, rounds: int = 50, workers: Workers = 0) -> None:
    """Print the mean time of a round after the first few."""
    torch.set_num_threads(1)
    engine: Engine = Local()
    if workers:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                 runtime_env={"worker_process_setup_hook": HOOK})
        engine = Ray(nodes=workers)
    took = federated(experiment(participants, cohort, rounds), engine)
    print(json.dumps({"ms": took}))


if __name__ == "__main__":
    typer.run(main)
