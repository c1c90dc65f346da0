"""Engines by name; each is imported, with Flower and PyTorch, when it is first looked up."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from fedfair.plugins.registry import Registry

ENGINES: Registry[Any] = Registry("engine")
"""Subclasses of `simulations.engines.engines.Engine`."""


def _found(name: str) -> Any:
    """Return a class of the module of engines."""
    return getattr(import_module("simulations.engines.engines"), name)


for _name in ("Flower", "Local", "Ray"):
    ENGINES.register_later(_name.lower(), partial(_found, _name))
