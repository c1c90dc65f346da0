"""Fair timings, and figures that can be checked.

A speed means nothing without a named alternative in the same run. So alternatives take turns, which lets a busy moment
of the machine hit all of them alike, and compare turn by turn; the median turn counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from simulations.results.atomic_files import write_json, write_text

_LOAD = os.getloadavg()[0]  # before this process adds its own

Turn = Callable[[], float]
"""Does some work and returns the milliseconds that one unit of work (a step, a round) took."""

Figures = Mapping[str, str | float | None]
"""One row of a table by column; None where there is nothing to compare with."""

Out = Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")]
Repeats = Annotated[int, typer.Option(min=1, help="Turns of every alternative.")]
Threads = Annotated[int, typer.Option(min=1, help="PyTorch threads.")]
FlowerRounds = Annotated[int, typer.Option(min=0, help="Rounds of Flower's simulation in its one turn; 0 leaves it "
                                           "out.")]


class Timings:
    """Milliseconds by alternative, one for each turn."""

    def __init__(self, turns: Mapping[str, Sequence[float]]) -> None:
        self.turns = turns

    def milliseconds(self, name: str) -> float:
        """Return the median turn of one alternative."""
        return median(self.turns[name])

    def spread(self, name: str) -> float:
        """Return the turns' interquartile range over their median: near 0 on a quiet machine; 0 for a single turn."""
        turns = self.turns[name]
        if len(turns) == 1:
            return 0.0
        low, middle, high = quantiles(turns, method="inclusive")
        return (high - low) / middle

    def figures(self, name: str) -> dict[str, float]:
        """Return one alternative's median and spread, as the columns "ms" and "spread"."""
        return {"ms": self.milliseconds(name), "spread": self.spread(name)}

    def ratio(self, name: str, to: str) -> float:
        """Return how many times longer `name` takes than `to`: the median over turns."""
        return median(a / b for a, b in zip(self.turns[name], self.turns[to], strict=True))

    def excess(self, name: str, over: str) -> float:
        """Return how many milliseconds more `name` takes than `over`: the median over turns."""
        return median(a - b for a, b in zip(self.turns[name], self.turns[over], strict=True))


class Stopwatch:
    """`Progress` that notes when each round ended; the first `warm_up` rounds do not count."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._ends: list[float] = []

    def __call__(self, done: int, rounds: int) -> None:
        """See `Progress`."""
        self._ends.append(perf_counter())

    @property
    def milliseconds(self) -> float:
        """Mean time of a round."""
        measured = self._ends[self._warm_up - 1:]
        return (measured[-1] - measured[0]) / (len(measured) - 1) * 1000


class Target(NamedTuple):
    """A figure and the bound that it should keep."""

    what: str
    figure: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure keeps the bound."""
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    def __str__(self) -> str:
        wanted = f"{'at least' if self.at_least else 'at most'} {self.bound:g}"
        return f"{self.what}: {self.figure:.2f}, wanted {wanted}: {'met' if self.met else 'MISSED'}"


def take_turns(alternatives: Mapping[str, Turn], repeats: int) -> Timings:
    """Run every alternative once to warm up, then all in turn, `repeats` times."""
    for turn in alternatives.values():
        turn()
    turns: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(repeats):
        for name, turn in alternatives.items():
            turns[name].append(turn())
    return Timings(turns)


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds that `work` takes."""
    start = perf_counter()
    work()
    return (perf_counter() - start) * 1000


def calls_of(step: Callable[[], object], calls: int = 5, milliseconds: float = 50) -> Turn:
    """Make a turn of at least `calls` calls and `milliseconds`.

    One call before them is not measured, so that the first measured call finds warm caches.
    """

    def turn() -> float:
        """Return the mean milliseconds of one call."""
        step()
        start, done, taken = perf_counter(), 0, 0.0
        while done < calls or taken * 1000 < milliseconds:
            step()
            done, taken = done + 1, perf_counter() - start
        return taken / done * 1000

    return turn


def report(title: str, rows: Sequence[Figures], targets: Sequence[Target], out: Path | None) -> None:
    """Print the figures as a table and whether the targets are met, and write all of it to `out`."""
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        table.add_column(column, justify="left" if isinstance(value, str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else "-" if value is None else f"{value:.2f}"
                        for value in row.values()))
    console = Console()
    console.print(table)
    if _LOAD > 0.5:
        console.print(f"[yellow]The machine was busy at the start, load {_LOAD:.1f}.[/yellow] Threads that wait for "
                      "each other then take most of the time: measure on a quiet one.", soft_wrap=True)
    for target in targets:
        console.print(str(target), highlight=False, soft_wrap=True)
    if out is not None:
        judged = [{**target._asdict(), "met": target.met} for target in targets]
        write_json(out, {"title": title, "environment": environment(), "figures": rows, "targets": judged})


def save_picture(drawing: str, out: Path | None) -> None:
    """Write an SVG beside the JSON file `out`, if there is one."""
    if out is not None:
        write_text(out.with_suffix(".svg"), drawing)


def environment() -> dict[str, Any]:
    """Describe what the figures depend on: package versions (null if absent), threads, load before; no names."""
    packages = {name: _version(name) for name in ("torch", "opacus", "flwr")}
    return {"packages": packages, "threads": torch.get_num_threads(), "load_before": _LOAD}


def _version(package: str) -> str | None:
    """Return a package's version, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
