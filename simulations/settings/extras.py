"""Libraries of optional extras."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def library(module: str, extra: str) -> Any:
    """Return a module of an optional extra; raise `ValueError` saying how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(f"{module} is not installed: pip install 'fedfair[{extra}]'") from None
