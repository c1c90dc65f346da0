"""Settings that suit a table of one's own, where no preset is named and nothing else is set.

A linear model on features in [0, 1] or standardised ones; large batches, since noise is drawn once a step whatever the
batch; an epsilon instead of a noise multiplier. A clipped gradient is at most `_CLIP_NORM` long, so the learning rate,
with momentum, lets 160 steps reach what logistic regression reaches (`tests/simulations/settings/test_own_data.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task
from fedfair.protocol.task_data import HUGGING_FACE
from simulations.settings.experiment import Experiment
from simulations.settings.presets import merged
from strategies import find_strategy

_CLIP_NORM, _EPSILON, _EPOCHS, _SHARE = 1.0, 3.0, 40.0, 0.25
FITTED = ("model", "batch_size", "learning_rate", "momentum", "clip_norm", "epochs", "delta", "noise_multiplier")
"""Settings that `suited` may make, or take away, where they are not given."""

_RATE = 0.5  # the learning rate at a clip norm of 1
_MOMENTUM = 0.9


def suited(settings: Mapping[str, Any], preset: str | None, strategies: Sequence[str]) -> dict[str, Any]:
    """Return settings with those that suit a table of the user's own below them; others, and with a preset, unchanged.

    Args:
        settings: What the user set, by name, possibly for single strategies.
        preset: Name of published settings, or None.
        strategies: Names of the strategies that will run.

    Raises:
        SettingsError: If a setting is not allowed.
        ValueError: If the table cannot be used.
        FileNotFoundError: If it is not there.
    """
    if not is_own(settings) or preset is not None:
        return dict(settings)
    known = {*Task.model_fields, "clip_norm"} & settings.keys()
    made = Experiment(**{"clip_norm": _CLIP_NORM, **{name: settings[name] for name in known}})
    clip_norm = made.clip_norm
    fitting: dict[str, Any] = {"target_epsilon": _EPSILON, "clip_norm": clip_norm, "epochs": _EPOCHS}
    if made.partition == NODES:  # whose number of records is not known yet
        fitting |= {} if "batch_size" in settings or settings.get("sync") == "epoch" else {"sampling_rate": _SHARE}
    elif not {"batch_size", "delta"} <= settings.keys():
        records = len(made.task.data().train)
        fitting |= {"delta": min(1e-6, 1 / (10 * records)), "batch_size": max(1, round(_SHARE * records))}
    if not {"model", "hidden"} & settings.keys():
        fitting |= {"model": "logistic"}
        needed = {name: find_strategy(name).settings for name in strategies}
        fitting |= {f"{name}.{key}": value for name, own in needed.items() for key, value in own.items()}
    if "optimizer" not in settings:
        fitting |= {"learning_rate": _RATE / max(clip_norm, _CLIP_NORM), "momentum": _MOMENTUM}
        fitting |= {f"{name}.momentum": 0.0 for name in strategies  # plain SGD, or an optimiser of its own
                    if find_strategy(name).protects == "participant" or f"{name}.optimizer" in settings}
    return merged(fitting, settings)


def is_own(settings: Mapping[str, Any]) -> bool:
    """Return whether the records are the user's, not a built-in data set's."""
    named = settings.get("csv") or settings.get("partition") == NODES
    return bool(named) or str(settings.get("dataset", "")).startswith(HUGGING_FACE)
