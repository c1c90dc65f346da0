"""Libraries that come with an extra of fedfair."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def library(module: str, extra: str) -> Any:
    """Return a module of an optional extra.

    Args:
        module: Its name.
        extra: Name of the extra.

    Raises:
        ValueError: If it is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(f"{module.partition('.')[0]} is not installed: pip install 'fedfair[{extra}]'") from None
