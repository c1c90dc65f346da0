"""From an experiment to a result, on any engine; what no machine can do is refused before work starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial

import pandas as pd
import psutil
import torch
from flwr.serverapp import Grid

from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.models import find
from fedfair.plugins.threads import threads_for
from fedfair.plugins.user_files import blaming_user_files, of_caller
from fedfair.protocol.fields import MOST_STEPS
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.task import Task
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.engines import ENGINES, Engine, make_engine
from simulations.engines.resume import Watch, begun, evaluate, learned_once, train
from simulations.files.atomic_files import alone_in
from simulations.results.node_files import contributions
from simulations.results.notebook import bar, in_notebook
from simulations.results.result import Result
from simulations.settings.deployment import refuse_no_noise
from simulations.settings.experiment import Experiment
from strategies import find_strategy
from strategies.server.releases.preprocessing import learn_columns, planned
from strategies.server.replies.requests import population
from strategies.server.rounds import Rounds

__all__ = ["ENGINES", "Progress", "conduct", "run"]

Progress = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""

_COPIES = 4  # of the parameters: the model, a message, the gradient sum, its noise
_ROUND = 1e-4  # seconds that a round takes with each node, without any computation
_SPEED = 1e14  # multiplications a second: more than any run here has reached
_DAYS = 30


def run(experiment: Experiment, engine: str | Engine = "local", nodes: int | None = None,
        progress: Progress | None = None, checkpoint: Checkpoint | None = None, watch: Watch = lambda *_: None
        ) -> Result:
    """Run an experiment and return its result; resume from `checkpoint` if it holds one.

    Args:
        experiment: What to run.
        engine: An engine's name (see `ENGINES`), or an engine with settings of its own.
        nodes: Number of Flower nodes that host the clients, at least 1; None for the engine's default. Ignored if
            `engine` is not a name.
        progress: Called with rounds done and rounds in all, as the run advances; by default a bar in a notebook, and
            nothing elsewhere.
        checkpoint: Where to save and find checkpoints; None for none.
        watch: Called with the strategy and the round's number at the end of every round.

    Returns:
        The result: metrics, ledger and model.

    Raises:
        ValueError: If the engine is unknown, settings do not fit the data, or no machine could do this run.
        FileNotFoundError: If the data cannot be had.
        OSError: If a checkpoint cannot be written, or its folder is in use.
        fedfair.node.node.ClientError: If a client fails.

    Examples:
        >>> result = run(Experiment(strategy="dpsgd-f", steps=2, hidden=(4,), accountant="rdp"))
        >>> result.ledger.guarantee, round(result.ledger.epsilon(), 2)
        ('simulated', 4.13)
        >>> result.metrics["split"].unique().tolist()
        ['rule', 'train', 'valid', 'test']
    """
    if progress is None:
        progress = bar(f"{experiment.strategy} on {experiment.dataset}") if in_notebook() else lambda *_: None
    chosen, progress, watch = make_engine(engine, nodes), of_caller(progress), of_caller(watch)
    if experiment.randomness == "system":
        chosen = chosen.without_repeats()
    refuse_too_large(experiment.task)
    return chosen(lambda grid: conduct(experiment, grid, progress, checkpoint, watch))


def refuse_unfit(planned: Iterable[Experiment]) -> None:
    """Raise what `run` would raise for settings that do not fit their data, before the first of many runs begins.

    Every seed's split is made, since a group may have no record in one of them. Then one experiment of those that
    differ by their seed alone is tried.
    """
    planned = list(planned)
    for experiment in {experiment.task.text: experiment for experiment in planned}.values():
        try:
            experiment.task.data()
        except ValueError as error:
            raise ValueError(f"seed {experiment.seed}: {error}") from None
    kinds = {json.dumps({**experiment.settings(), "seed": 0}, sort_keys=True): experiment for experiment in planned}
    for experiment in kinds.values():
        make_engine("local")(partial(_planned, experiment))


def conduct(experiment: Experiment, grid: Grid, progress: Progress, checkpoint: Checkpoint | None = None,
            watch: Watch = lambda *_: None) -> Result:
    """Train and evaluate over the nodes of a grid.

    Raises `fedfair.plugins.user_files.UserFileError` with file and line for what goes wrong in a file of the user's.
    """
    with blaming_user_files(), threads_for(experiment.task.build_model(), experiment.batch_size):
        return _conducted(experiment, grid, progress, checkpoint, watch)


def _conducted(experiment: Experiment, grid: Grid, progress: Progress, checkpoint: Checkpoint | None, watch: Watch
               ) -> Result:
    """Train and evaluate, alone in the checkpoint's folder; raise errors of a user's file as they are."""
    with alone_in(checkpoint.folder) if checkpoint else nullcontext():
        return _trained(experiment, grid, progress, checkpoint, watch)


def _trained(experiment: Experiment, grid: Grid, progress: Progress, checkpoint: Checkpoint | None, watch: Watch
             ) -> Result:
    """Train and evaluate."""
    rounds = rounds_of(experiment, grid, progress, checkpoint)
    arrays = pack(first_weights(rounds))
    if rounds.rounds == 0:
        evaluate(rounds, arrays, grid)
    else:
        arrays = rounds.chosen(train(rounds, grid, arrays, checkpoint, watch))
    return result_of(experiment, rounds, unpacked(arrays))


def first_weights(rounds: Rounds) -> Gradients:
    """Return the weights that a run starts from, by name."""
    parameters, _ = trained_parameters(rounds.task.build_model())
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def result_of(experiment: Experiment, rounds: Rounds, weights: Gradients) -> Result:
    """Return the result of a run that has ended with some weights."""
    model = rounds.task.build_model()
    parameters, _ = trained_parameters(model)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    return Result(experiment, rounds.task.data(), pd.DataFrame(rounds.rows.all), rounds.ledger, model, rounds.search,
                  rounds.evaluation.threshold, rounds.front,
                  rounds.evaluation.figures.released if rounds.evaluation.figures else None,
                  contributions(rounds))


def rehearse(experiment: Experiment) -> None:
    """Raise what `run` would raise for settings that do not fit their data, and release nothing.

    Args:
        experiment: What would be run.
    """
    experiment.task.data()
    make_engine("local")(partial(_planned, experiment))


def _planned(experiment: Experiment, grid: Grid) -> Rounds:
    """Make the rounds of an experiment for the records that the nodes of a grid hold, releasing nothing."""
    task, training = experiment.task, experiment.training
    size = refuse_too_large(task)
    task.build_model()
    with blaming_user_files():
        rounds = Rounds(find_strategy(experiment.strategy)(
            task, training, population(grid, task, training.answer_timeout), preprocessing=planned(task, training)))
    refuse_endless(experiment, rounds.rounds, len(list(grid.get_node_ids())), size)
    return rounds


def rounds_of(experiment: Experiment, grid: Grid, progress: Progress, checkpoint: Checkpoint | None = None) -> Rounds:
    """Make the rounds of an experiment, after private preprocessing, which a checkpoint holds if there is one.

    What makes the run impossible is refused before the release.
    """
    task, training, kind = experiment.task, experiment.training, find_strategy(experiment.strategy)
    size = refuse_too_large(task)
    sizes, spent = population(grid, task, training.answer_timeout), planned(task, training)
    done = begun(spent, training.delta, sizes.fingerprint, checkpoint) if spent else None
    charged = done.charged if done else None
    made = Rounds(kind(task, training, sizes, preprocessing=charged), progress)
    refuse_no_noise(made.method)
    refuse_endless(experiment, made.rounds, len(list(grid.get_node_ids())), size)
    if spent is None or done is None:
        return made
    learn = partial(learn_columns, task, training, sizes, grid, spent, kind.protects, made.method.key)
    learned = done.task or learned_once(learn, done.charged, sizes.fingerprint,
                                        None if made.method.key else checkpoint)
    return Rounds(kind(learned, training, sizes, preprocessing=charged), progress)


def refuse_too_large(task: Task) -> int:
    """Return the number of the model's parameters; raise `ValueError` if they take more memory than is free.

    A model of the user's own counts as 0: nobody knows what its file does before it is run.
    """
    free = psutil.virtual_memory().available
    parameters = 0 if find.file_of(task.model) else _parameters(task)
    each = _COPIES * task.torch_dtype.itemsize
    if parameters * each > free:
        raise ValueError(f"model {task.model} with hidden {list(task.hidden)} has {parameters:,} parameters, which "
                         f"take at least {_size(parameters * each)} of memory, and {_size(free)} are free: take "
                         f"narrower layers, with at most {free // each:,} parameters")
    return parameters


def refuse_endless(experiment: Experiment, rounds: int, nodes: int, parameters: int) -> None:
    """Raise `ValueError` for a run that could not end within a month.

    Args:
        experiment: What is run.
        rounds: Number of its rounds.
        nodes: Number of nodes that compute in each.
        parameters: Number of the model's parameters, each of which multiplies every record.
    """
    named = f"steps is {experiment.steps}" if experiment.steps is not None else f"epochs is {experiment.epochs:g}"
    each = nodes * _ROUND + parameters * experiment.batch_size / _SPEED
    days, most = rounds * each / 86_400, min(MOST_STEPS, int(_DAYS * 86_400 / each))
    if rounds > most:
        raise ValueError(f"{named}, which makes {rounds:,} rounds, {days:,.1f} days at the least: take at most "
                         f"{most:,} rounds, by fewer epochs or steps, or by a larger batch_size")


def _parameters(task: Task) -> int:
    """Return how many parameters a published model has, without making them."""
    train = task.data().train
    try:
        with torch.device("meta"):
            model = find.build(task.model, task.hidden, train.x.shape[1:], train.classes, task.seed, task.torch_dtype)
    except RuntimeError as error:
        if "overflow" not in str(error):  # of the 64 bits in which PyTorch counts bytes
            raise
        raise ValueError(f"model {task.model} with hidden {list(task.hidden)} is larger than any memory: take narrower "
                         "layers") from None
    return sum(parameter.numel() for parameter in model.parameters())


def _size(count: float) -> str:
    """Return a number of bytes in words."""
    return f"{count / 1e9:,.1f} GB"
