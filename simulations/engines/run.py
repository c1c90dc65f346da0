"""From an experiment to a result, on any engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pandas as pd
import torch
from flwr.app import ConfigRecord
from flwr.serverapp import Grid
from torch import nn

from fedfair.gradients.probe import trained_parameters
from fedfair.protocol.messages import pack, unpacked
from simulations.engines.checkpoint import Checkpoint, Watch, train
from simulations.engines.engines import ENGINES, Engine, make_engine
from simulations.results.atomic_files import alone_in
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies import Strategy, find_strategy
from strategies.server.requests import population

__all__ = ["ENGINES", "Progress", "conduct", "run"]

_WORTH_THREADS = 5_000_000  # multiplications of a forward pass; on digits it is 0.6 million, on Adult 24

Progress = Callable[[int, int], None]
"""Called with the rounds done and the rounds to do."""


def run(experiment: Experiment, engine: str | Engine = "local", nodes: int | None = None,
        progress: Progress = lambda *_: None, checkpoint: Checkpoint | None = None, watch: Watch = lambda *_: None
        ) -> Result:
    """Run an experiment and return its result, going on from `checkpoint` if there is one.

    `engine` is a name (see `ENGINES`), with the number of Flower `nodes` that host the clients, or an engine that was
    made with settings of its own. Raises `ValueError` for an unknown engine or settings that do not fit the data,
    `FileNotFoundError` if the data cannot be had, `OSError` if a checkpoint cannot be written or its folder is in use,
    and `fedfair.node.node.ClientError` if a client fails.
    """
    chosen = make_engine(engine, nodes)
    if experiment.randomness == "system":
        chosen = chosen.without_repeats()
    experiment.task.data()
    with threads_for(experiment):
        return chosen(lambda grid: conduct(experiment, grid, progress, checkpoint, watch))


@contextmanager
def threads_for(experiment: Experiment) -> Iterator[None]:
    """One thread of PyTorch for a while, if the model is too small to gain from more.

    Threads that wait for each other do so busily: on a machine that has other work, two take ten times as long as one.
    """
    before, model = torch.get_num_threads(), experiment.task.build_model()
    linear = all(isinstance(layer, nn.Linear) for layer in model.modules() if next(layer.parameters(False), None)
                 is not None)
    products = experiment.batch_size * sum(parameter.numel() for parameter in model.parameters())
    torch.set_num_threads(1 if linear and products < _WORTH_THREADS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def refuse_unfit(planned: Iterable[Experiment]) -> None:
    """Raise what `run` would raise for settings that do not fit their data, before the first of many runs begins.

    Of experiments that differ by their seed alone, which fit alike, one is tried.
    """
    kinds = {json.dumps({**experiment.settings(), "seed": 0}, sort_keys=True): experiment for experiment in planned}
    for experiment in kinds.values():
        make_engine("local")(partial(_strategy, experiment))


def conduct(experiment: Experiment, grid: Grid, progress: Progress, checkpoint: Checkpoint | None = None,
            watch: Watch = lambda *_: None) -> Result:
    """Train and evaluate over the nodes of a grid."""
    task, strategy = experiment.task, _strategy(experiment, grid, progress)
    model = task.build_model()
    parameters, _ = trained_parameters(model)
    arrays = pack({name: parameter.detach().clone() for name, parameter in parameters.items()})
    if strategy.rounds == 0:
        asked = strategy.configure_evaluate(0, arrays, ConfigRecord(), grid)
        strategy.aggregate_evaluate(0, grid.send_and_receive(asked))
    else:
        with alone_in(checkpoint.folder) if checkpoint else nullcontext():
            arrays = train(strategy, grid, arrays, checkpoint, watch)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(unpacked(arrays)[name])
    return Result(experiment, task.data(), pd.DataFrame(strategy.rows.all), strategy.ledger, model, strategy.search,
                  strategy.threshold)


def _strategy(experiment: Experiment, grid: Grid, progress: Progress = lambda *_: None) -> Strategy:
    """The experiment's strategy, made for the records that the nodes of a grid hold."""
    return find_strategy(experiment.strategy)(experiment.task, experiment.training, population(grid, experiment.task),
                                              progress)
