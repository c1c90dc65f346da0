"""From an experiment to a result, on any engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
import torch
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedfair import client_app
from fedfair.messages import pack, unpacked
from fedfair.registry import Registry
from simulations.experiment import Experiment
from simulations.grids.local import LocalGrid
from simulations.result import Result
from strategies import find_strategy
from strategies.exchange import population

Progress = Callable[[int, int], None]
"""Called with the rounds done and the rounds to do."""

Engine = Callable[[Experiment, int | None, Progress], Result]
ENGINES: Registry[Engine] = Registry("engine")
"""Where clients run, by name."""


def run(experiment: Experiment, engine: str = "local", nodes: int | None = None, progress: Progress = lambda *_: None
        ) -> Result:
    """Run an experiment and return its result.

    `nodes` is the number of Flower nodes that host the clients; by default the local engine takes one, which computes
    for all clients together, and Flower two. The result does not depend on it beyond float rounding. Raises
    `ValueError` for an unknown engine or settings that do not fit the data, `FileNotFoundError` if the data cannot be
    had, and `fedfair.host.ClientError` if a client fails.
    """
    start = ENGINES[engine]
    experiment.task.data()
    return start(experiment, nodes, progress)


def conduct(experiment: Experiment, grid: Grid, progress: Progress) -> Result:
    """Train and evaluate over the nodes of a grid."""
    task = experiment.task
    sizes = population(grid, task)
    strategy = find_strategy(experiment.strategy)(task, experiment.training, sizes, progress)
    model = task.build_model()
    arrays = pack({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
    if strategy.rounds == 0:
        asked = strategy.configure_evaluate(0, arrays, ConfigRecord(), grid)
        strategy.aggregate_evaluate(0, grid.send_and_receive(asked))
    else:
        arrays = strategy.start(grid, arrays, num_rounds=strategy.rounds).arrays
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(unpacked(arrays)[name])
    return Result(experiment, task.data(), pd.DataFrame(strategy.rows), strategy.ledger, model, strategy.search,
                  strategy.threshold)


@ENGINES.register("local")
def _local(experiment: Experiment, nodes: int | None, progress: Progress) -> Result:
    """In this process: no serialisation, thousands of steps a minute."""
    with quiet_flower():
        return conduct(experiment, LocalGrid(client_app.app, nodes or 1), progress)


@ENGINES.register("flower")
def _flower(experiment: Experiment, nodes: int | None, progress: Progress) -> Result:
    """Flower's own simulation, on Ray; the same program that `flwr run` starts."""
    results: list[Result] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        results.append(conduct(experiment, grid, progress))

    with quiet_flower():
        run_simulation(server_app, client_app.app, nodes or 2, backend_config={"client_resources": {"num_cpus": 1}})
    return results[0]


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Keep Flower's log to warnings for a while."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
