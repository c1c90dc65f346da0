"""Names of settings and of presets, for completion, without an import of what they name.

The names of all settings, for completion: a test holds them equal to the fields of an experiment.

Importing the experiment, and PyTorch with it, takes seconds, which a person who presses the tab key should not wait.

The files of published settings: the presets.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

SETTINGS = (
    "accountant", "alpha", "answer_timeout", "attribute_in_model", "average", "balance", "bands", "batch_size", "bins",
    "capitals", "categorical", "categories", "class_weights", "clients", "clip_norm", "count_noise_multiplier",
    "csv", "dataset", "decimal", "delta", "deprived", "device", "drop_first", "dropouts", "dtype", "duplicates",
    "edges", "encoding", "epochs", "eval_every", "favourable", "features", "figures", "figures_epsilon", "gamma",
    "group", "group_epsilon", "hidden", "imbalance", "known_from", "label", "learning_rate", "metrics", "missing",
    "missing_marks", "mode", "model", "momentum", "noise", "noise_multiplier", "numbers", "optimizer", "options",
    "participant", "partition", "pixels", "preprocessing", "preprocessing_epsilon", "randomness", "ranges",
    "record_weight", "risk_every", "risk_records", "risk_vectors", "round_sizes", "sampling_rate", "scalings",
    "schema_file", "secure_aggregation", "seed", "separator", "sheet", "site", "split", "split_by", "steps", "strategy",
    "sync", "target_epsilon", "theta", "threshold", "threshold_confidence", "threshold_epsilon", "trust",
    "weight_decay", "without")


_CONFIGS = files("simulations") / "configs"


def preset_names() -> list[str]:
    """List the preset names."""
    return sorted(file.name.removesuffix(".toml") for file in _CONFIGS.iterdir() if file.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return what the file of a preset holds."""
    return tomllib.loads((_CONFIGS / f"{name}.toml").read_text(encoding="utf-8"))
