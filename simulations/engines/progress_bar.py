"""A bar that shows how far a run is, in a notebook: it moves in its cell, and goes when the run ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_PAUSE = 0.2  # seconds between two pictures


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def bar_of_runs() -> Callable[[int, int, str, int, int], None]:
    """Return what shows how far several runs are, as one bar: a function that `compare` calls (`OnRound`)."""
    move = bar("runs")

    def on_round(done: int, runs: int, name: str, rounds: int, of: int) -> None:
        """Show the share that is done, in rounds of the run at hand."""
        move(done * of + rounds, runs * of)

    return on_round


def bar(name: str) -> Callable[[int, int], None]:
    """Return what shows a run's rounds as a bar below the cell that runs.

    Returns:
        A function of the rounds done and the rounds in all.
    """
    from IPython import display  # a notebook has it

    shown: Any = display
    handle = shown.display(_Shown(name, 0, 1), display_id=True)
    latest = 0.0

    def move(done: int, rounds: int) -> None:
        """Show the rounds done, or nothing once all are."""
        nonlocal latest
        if done >= rounds or time.monotonic() - latest >= _PAUSE:
            latest = time.monotonic()
            handle.update(_Shown(name, done, rounds))

    return move


class _Shown:
    """A bar at one moment."""

    def __init__(self, name: str, done: int, rounds: int) -> None:
        self.name, self.done, self.rounds = name, done, rounds

    def __repr__(self) -> str:
        return f"{self.name}: round {self.done:,} of {self.rounds:,}" if self.done < self.rounds else ""

    def _repr_html_(self) -> str:
        """Show the bar; nothing once the run has ended."""
        if self.done >= self.rounds:
            return " "
        from html import escape

        return (f'<label>{escape(self.name)} <progress value="{self.done}" max="{self.rounds}"></progress> '
                f"round {self.done:,} of {self.rounds:,}</label>")
