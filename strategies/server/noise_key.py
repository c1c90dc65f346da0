"""The noise key: a digest of everything that defines a seeded experiment, from which its batches and noise follow.

Two experiments that differ in a setting share no draw: the difference of two releases that carry one noise holds none.
Settings marked `same_releases` stay out, so that a measured run is the run without the measurement. So does what the
records hold: a key that depends on a secret would tell of it. Two seeded runs of one experiment on other records
therefore share their noise, which is one reason why a seeded run is "simulated". In data of the user's own, the columns
that are features and the public numbers of records stand for the file and the names of its columns: two files that hold
the same table under other names are one experiment.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import torch
from pydantic import BaseModel

from fedfair.plugins.user_files import name_in_file
from fedfair.protocol.fields import marked
from fedfair.protocol.task import Task
from strategies.server.training import Training

_BITS = 128


def noise_key(method: type, sync: str, options: BaseModel, task: Task, training: Training) -> str | None:
    """Return the key of a run, in hexadecimal, or None if its batches and noise come from the operating system.

    Args:
        method: The strategy's class.
        sync: The mode, "step" or "epoch", whether `training` names it or the strategy chose it.
        options: The strategy's own parameters, with their defaults.
        task: Data, model and seed.
        training: Settings of the training.
    """
    if training.randomness == "system":
        return None
    identity = {"strategy": name_in_file(method) or method.__name__, "sync": sync, "options": _chosen(options),
                "task": _of_data(task), "training": _chosen(training.without_equal_tables(), "options", "sync")}
    text = json.dumps(identity, sort_keys=True)
    return blake2b(text.encode(), digest_size=_BITS // 8, person=b"noise key").hexdigest()


def _of_data(task: Task) -> dict[str, Any]:
    """Return what defines the data, split and model of a run, as JSON values."""
    if not task.is_own or task.partition == "nodes":  # of which the server has no records
        return _chosen(task)
    train = task.data().train
    return {**_chosen(task, "csv", "dataset", "group", "without"), "columns": [*dict.fromkeys(train.columns)],
            "shape": list(train.x.shape[1:]), "records": task.public_sizes(torch.tensor(train.group_sizes())).tolist()}


def _chosen(settings: BaseModel, *without: str) -> dict[str, Any]:
    """Return the settings that are not at their defaults, as JSON values.

    So a setting that is added later changes the key of no run that does not use it.
    """
    left_out = {*without, *marked(type(settings), "same_releases")}
    return settings.model_dump(mode="json", exclude=left_out, exclude_defaults=True, fallback=repr)
