"""What is imported when somebody first asks for it: names that a package offers, and libraries of an extra."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as typing's, which takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package` (PEP 562), given the module of each name that it offers.

    A process that asks for few of the names does not wait for the imports that the others need. The function that is
    returned raises `AttributeError` for a name that the package does not offer.
    """

    def find(name: str) -> Any:
        """Import the module of `name`, and keep its value in the package; raise `AttributeError` for another name."""
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find


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
