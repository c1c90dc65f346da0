"""What a run takes at the least, in memory and in time: what no machine can do is refused before work starts."""

from __future__ import annotations

import psutil
import torch

from fedfair.models import find
from fedfair.protocol.fields import MOST_STEPS
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment

_COPIES = 4  # of the parameters: the model, a message, the gradient sum, its noise
_ROUND = 1e-4  # seconds that a round takes with each node, without any computation
_SPEED = 1e14  # multiplications a second: more than any run here has reached
_DAYS = 30


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
