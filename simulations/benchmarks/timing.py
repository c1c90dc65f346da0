"""Fair timings of alternatives.

A speed means nothing without a named alternative in the same run. So alternatives take turns, which lets a busy moment
of the machine hit all of them alike, and compare turn by turn; the median turn counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated

import typer

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
