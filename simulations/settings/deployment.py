"""`mode = "deployment"`: one word for the settings with which no seed, no server and no exact figure tells of a record.

A setting that is given beside it wins where the deployment stays one; another is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedfair.datasets.schema import RECORDS
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.task import Task
from strategies import Strategy
from strategies.server.training import Training

DEPLOYMENT = "deployment"

SETTINGS: Mapping[str, Any] = {"randomness": "system", "trust": "local", "noise": "discrete", "dtype": "float64",
                               "figures": "none", "attribute_in_model": False}
"""What the word sets."""

_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "randomness": ("system",), "trust": (Trust.LOCAL, Trust.DISTRIBUTED), "noise": ("discrete",),
    "figures": ("none", "private", "held-out"), "attribute_in_model": (False,), "risk_every": (None,),
    "preprocessing": (None, "public", "private")}
"""What may be given beside it."""


def with_deployment(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with those that a deployment sets, if they name one."""
    return {**SETTINGS, **values} if values.get("mode") == DEPLOYMENT else dict(values)


def refuse_no_deployment(task: Task, training: Training) -> None:
    """Refuse settings that a deployment does not allow.

    Raises:
        ValueError: For such settings.
    """
    if training.mode != DEPLOYMENT:
        return
    for name, allowed in _ALLOWED.items():
        given = getattr(training if name in Training.model_fields else task, name)
        if given not in allowed:
            raise ValueError(f"mode is \"deployment\", but {name} is {_text(given)}: it can be "
                             f"{' or '.join(map(_text, allowed))} there; leave it out, or take mode = \"simulation\"")
    if task.prepares == "records" or task.known_from == RECORDS:
        raise ValueError('mode is "deployment", but ranges and categories come from the records: give public ones by a '
                         "schema_file whose source says where they are published")
    if training.searches and training.threshold_epsilon is None:
        raise ValueError(f"mode is \"deployment\", but threshold is {training.threshold!r}, which is searched for "
                         "without noise: give threshold_epsilon")


def refuse_no_noise(strategy: Strategy) -> None:
    """Refuse a deployment of a method that adds no noise.

    Raises:
        ValueError: If it adds none.
    """
    if strategy.training.mode == DEPLOYMENT and not all(strategy.noise.multipliers):
        raise ValueError(f"mode is \"deployment\", but {type(strategy).__name__} adds no noise here: take a private "
                         "strategy, and a noise_multiplier above 0, or a target_epsilon")


def _text(value: Any) -> str:
    """Return a value as it is written in settings."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "not set"}[value]
    return repr(value.value if isinstance(value, Trust) else value)
