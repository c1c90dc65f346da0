"""The files of published settings: the presets."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

_CONFIGS = files("simulations") / "configs"


def preset_names() -> list[str]:
    """List the preset names."""
    return sorted(file.name.removesuffix(".toml") for file in _CONFIGS.iterdir() if file.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return what the file of a preset holds."""
    return tomllib.loads((_CONFIGS / f"{name}.toml").read_text(encoding="utf-8"))
