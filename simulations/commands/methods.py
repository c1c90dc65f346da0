"""`fedfair methods`: which methods there are, from which papers, and what each needs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strategies import COMBINATIONS, STRATEGIES

if TYPE_CHECKING:
    from strategies import Strategy


def methods() -> None:
    """List the methods: what each does and where it is published, what a guarantee protects, and what it needs.

    Example: fedfair methods
    """
    table = Table("method", "what it does, and its source", "protects", "needs", box=None)
    for name in STRATEGIES:
        strategy = STRATEGIES[name]
        table.add_row(*map(Text, (name, _purpose(strategy), strategy.protects, _needs(strategy))))
    for name in COMBINATIONS:
        base, settings = COMBINATIONS[name]
        given = ", ".join(f"{key} = {value}" for key, value in settings.items())
        table.add_row(*map(Text, (name, f"{base} with {given}.", STRATEGIES[base].protects, "validation records")))
    Console().print(table)


def _purpose(strategy: type[Strategy]) -> str:
    """Return the first line of what a strategy's file says of it."""
    return (inspect.getmodule(strategy).__doc__ or "").partition("\n")[0]


def _needs(strategy: type[Strategy]) -> str:
    """Return what a strategy says that it needs, whether it counts, and what a round must be."""
    from strategies.server.strategy import Strategy

    rounds = "" if len(strategy.modes) > 1 else f"sync {strategy.modes[0]}"
    counts = "noisy counts" if strategy.query is not Strategy.query else ""
    return "; ".join(filter(None, (strategy.needs, counts, rounds)))
