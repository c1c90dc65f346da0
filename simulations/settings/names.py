"""Settings, presets and engines by name, and settings as text, without an import of what they name.

Importing the experiment, and PyTorch with it, takes seconds, which a person who presses the tab key should not wait. A
test holds the names of settings equal to the fields of an experiment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any

from fedfair.plugins.registry import Registry
from fedfair.plugins.text_values import from_toml

SETTINGS = (
    "accountant", "alpha", "answer_timeout", "answers", "attribute_in_model", "average", "balance", "bands",
    "batch_size", "bins", "capitals", "categorical", "categories", "class_weights", "clients", "clip_norm",
    "count_noise_multiplier", "csv", "dataset", "decimal", "delta", "deprived", "device", "drop_first", "dropouts",
    "dtype", "duplicates", "edges", "encoding", "epochs", "eval_every", "favourable", "features", "figures",
    "figures_epsilon", "gamma", "gap_among", "group", "group_epsilon", "header_row", "hidden", "imbalance",
    "known_from", "label", "learning_rate", "local_epochs", "metrics", "missing", "missing_marks", "mode", "model",
    "momentum", "noise", "noise_multiplier", "numbers", "optimizer", "options", "participant", "partition", "pixels",
    "preprocessing", "preprocessing_epsilon", "proximal", "quantities", "randomness", "ranges", "record_weight",
    "risk_every", "risk_records", "risk_vectors", "round_sizes", "sampling", "sampling_rate", "scalings",
    "schema_file", "secure_aggregation", "seed", "separator", "sheet", "site", "split", "split_by", "steps",
    "strategy", "sync", "target_epsilon", "theta", "threshold", "threshold_confidence", "threshold_epsilon", "trust",
    "weight_decay", "without", "wrong_groups")

ENGINES: Registry[Any] = Registry("engine")
"""Subclasses of `simulations.engines.engines.Engine`."""


def _found(name: str) -> Any:
    """Return a class of the module of engines."""
    return getattr(import_module("simulations.engines.engines"), name)


for _name in ("Flower", "Local", "Ray"):
    ENGINES.register_later(_name.lower(), partial(_found, _name))

_CONFIGS = files("simulations") / "configs"


def preset_names() -> list[str]:
    """List the preset names."""
    return sorted(file.name.removesuffix(".toml") for file in _CONFIGS.iterdir() if file.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return what the file of a preset holds."""
    return tomllib.loads((_CONFIGS / f"{name}.toml").read_text(encoding="utf-8"))


def parsed(text: str) -> Any:
    """Return the value that `text` is in TOML (numbers, lists, true, "quoted"), or else the text itself."""
    try:
        return from_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def pairs(texts: Iterable[str]) -> dict[str, Any]:
    """Return settings from texts key=value; raise `ValueError` for a text without an equals sign."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not a setting: write key=value, for example epochs=5")
        settings[key.strip()] = parsed(value.strip())
    return settings
