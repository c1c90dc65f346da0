"""Published settings, as TOML files beside the code.

A file has `[settings]` for all, `[datasets.D]` and `[strategies.S]` for one of them, and `[datasets.D.strategies.S]`
for a pair; the more particular wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fedfair.plugins.registry import unknown
from strategies import COMBINATIONS

_CONFIGS = files("simulations") / "configs"


def preset_names() -> list[str]:
    """The presets that there are."""
    return sorted(file.name.removesuffix(".toml") for file in _CONFIGS.iterdir() if file.name.endswith(".toml"))


def preset(name: str | None, dataset: str | None, strategy: str) -> dict[str, Any]:
    """The settings of a preset for one data set and strategy; without a name, those called like the data set, if any.

    `dataset` is None for a file of one's own, which gets only what is meant for all data. A combination has the
    settings of its strategy, unless the preset has its own for it. Raises `ValueError` for an unknown name.
    """
    if name is None:
        if dataset not in preset_names():
            return {}
        name = dataset
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    config = tomllib.loads((_CONFIGS / f"{name}.toml").read_text())
    own = dict(config.get("datasets", {}).get(dataset, {}))
    pairs, strategies = own.pop("strategies", {}), config.get("strategies", {})
    names = [COMBINATIONS[strategy].strategy, strategy] if strategy in COMBINATIONS else [strategy]
    return merged(config["settings"], own, *(of.get(name, {}) for of in (strategies, pairs) for name in names))


_RIVALS = {"noise_multiplier": "target_epsilon", "target_epsilon": "noise_multiplier", "steps": "epochs",
           "epochs": "steps"}
"""Settings of which one makes the other meaningless."""


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping from several, as `joined`, where a setting of a later one also wins over its rival (`_RIVALS`)."""
    result: dict[str, Any] = {}
    for layer in layers:
        rivals = {_RIVALS[key] for key in layer if key in _RIVALS} - layer.keys()
        result = joined({key: value for key, value in result.items() if key not in rivals}, layer)
    return result


def joined(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping from several, later ones winning; `options` are joined one by one."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            result[key] = {**result.get(key, {}), **value} if key == "options" else value
    return result
