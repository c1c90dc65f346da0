"""Tools of the benchmarks: what they report, fair timings of alternatives, and the cost of a command.

A report is a table of figures, whether targets are met, and all of it as JSON. A speed means nothing without a named
alternative in the same run, so alternatives take turns, which lets a busy moment of the machine hit all of them alike,
and compare turn by turn; the median turn counts. A command's cost is the time that it reports, and the peak memory of
it and all processes that it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryFile
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawing
from simulations.files.atomic_files import write_json, write_text

_LOAD = os.getloadavg()[0]  # before this process adds its own

Figures = Mapping[str, str | float | None]
"""One row of a table by column; None where there is nothing to compare with."""

Out = Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")]


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


def save_picture(picture: str, out: Path | None) -> None:
    """Write an SVG beside the JSON file `out`, if there is one."""
    if out is not None:
        write_text(out.with_suffix(".svg"), picture)


def line_chart(title: str, x: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw a line for each name through points (x, y), both above 0; `x` labels the axis across."""
    series = []
    for place, (name, values) in enumerate(lines.items()):
        points = tuple(Point(Estimate(across), Estimate(up)) for across, up in values)
        series.append(Series(name, place, points))
    return drawing(Figure("lines", title, "", (Panel(title, Scale(x, log=True), Scale("", log=True), tuple(series)),)))


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


Turn = Callable[[], float]
"""Does some work and returns the milliseconds that one unit of work (a step, a round) took."""

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


_EVERY = 0.25  # seconds between two looks at the memory


class Measured(NamedTuple):
    """Last line that a command printed, which is JSON, and its peak memory in MiB."""

    said: dict[str, Any]
    mebibytes: float


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float = 600) -> Measured:
    """Run a command of this program's own; raises `RuntimeError` with its last lines if it fails or takes too long.

    Memory that processes share (code, Ray's object store) is counted once: the proportional set sizes of the command
    and its descendants, added up. Each look stops the command and takes some 15 ms of a core.
    """
    peak = 0.0

    def look(process: int) -> None:
        """Keep the most memory so far."""
        nonlocal peak
        peak = max(peak, sum(map(_proportional, descendants(process))))

    return Measured(_said(command, environment, timeout, look), peak)


def undisturbed(command: Sequence[str], timeout: float = 600) -> dict[str, Any]:
    """Return the last line that a command prints, which is JSON; run it as `measure` does, but without looks."""
    return _said(command, None, timeout, lambda process: None)


def _said(command: Sequence[str], environment: Mapping[str, str] | None, timeout: float, look: Callable[[int], None]
          ) -> dict[str, Any]:
    """Return the last line that a command prints; call `look` with its process id every `_EVERY` seconds."""
    start = time.monotonic()
    with TemporaryFile("w+") as output, subprocess.Popen(  # noqa: S603
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}) as process:
        while process.poll() is None:
            look(process.pid)
            if time.monotonic() - start > timeout:
                process.kill()
            time.sleep(_EVERY)
        output.seek(0)
        lines = output.read().strip().splitlines()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {' | '.join(lines[-5:])}")
    said: dict[str, Any] = json.loads(lines[-1])
    return said


def spent(program: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, float]:
    """Return the processor seconds, and the most GiB, of a Python program with one thread.

    Args:
        program: What follows `python -c`: the program, and its arguments.
        environment: Variables to be set.

    Raises:
        RuntimeError: If it fails.
    """
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", *program],
                           {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                           file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError("the program failed: its error stands above")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def descendants(root: int) -> Iterator[int]:
    """Yield the process `root` and all that it started, directly or not."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended since
        children[int(parent)].append(int(folder.name))
    waiting = [root]
    while waiting:
        yield (now := waiting.pop())
        waiting += children[now]


def _proportional(process: int) -> float:
    """Return a process's proportional set size in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
