"""Settings written as text: on the command line and in Flower's run config."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any


def parsed(text: str) -> Any:
    """Return the value that `text` is in TOML (numbers, lists, true, "quoted"), or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
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
