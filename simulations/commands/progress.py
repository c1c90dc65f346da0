"""How far a command is: a bar on a terminal; elsewhere a line now and then, and one when another run is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Semaphore, Thread
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedfair.datasets.names import visible

OnRound = Callable[[int, int, str, int, int], None]
"""As `simulations.plans.compare.OnRound`: runs done, all runs, the current run's name, its rounds done, all rounds."""

_EVERY = 10.0  # seconds between lines, at first
_FIRST = "preparing: reads the records, makes their features and starts the nodes"
"""What is said before the first round."""
_SHARE = 0.1  # of the time so far, between lines later: a day's run has some sixty


@contextmanager
def showing_progress() -> Iterator[OnRound]:
    """Show on stderr how far all runs are, with the time left."""
    console = Console(stderr=True)
    with (_bar(console) if console.is_terminal else progress_lines()) as on_round:
        yield on_round


@contextmanager
def _bar(console: Console) -> Iterator[OnRound]:
    """Show a bar."""
    percentage = TextColumn("{task.percentage:.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        bar = progress.add_task(_FIRST, total=1.0)

        def on_round(done: int, runs: int, name: str, rounds: int, of: int) -> None:
            """Move the bar."""
            description = escape(visible(f"{name} ({done + 1} of {runs})"))
            progress.update(bar, description=description, completed=(done + rounds / of) / runs)

        yield on_round


@contextmanager
def progress_lines(every: float = _EVERY) -> Iterator[OnRound]:
    """Print lines: one when another run is made, and others from time to time, also while nothing is heard.

    Args:
        every: Seconds between the latter, at first.
    """
    lines, ended = _Lines(), Semaphore(0)

    def tell_now_and_then() -> None:
        """Print until the work has ended."""
        while not ended.acquire(timeout=max(0.0, lines.due(every) - monotonic())):
            if monotonic() >= lines.due(every):
                lines.tell()

    Thread(target=tell_now_and_then, daemon=True).start()
    try:
        yield lines.on_round
    finally:
        ended.release()


class _Lines:
    """How far the runs are, in words."""

    def __init__(self) -> None:
        self.start = self.told = monotonic()
        self.name, self.share, self.runs, self.finished = _FIRST, 0.0, 1, 0
        self.first: float | None = None  # what an earlier command had done

    def on_round(self, done: int, runs: int, name: str, rounds: int, of: int) -> None:
        """Note how far the runs are; print a line if another is made, or as many rounds of several."""
        if self.first is None:
            self.first = max(rounds - 1, 0) / of / runs
        finished = done + rounds // of
        self.name, self.share, self.runs = name, (done + rounds / of) / runs, runs
        if finished > self.finished:
            self.finished = finished
            self.tell()

    def due(self, every: float) -> float:
        """Return when the next line is due, if no run finishes before."""
        return self.told + max(every, _SHARE * (self.told - self.start))

    def tell(self) -> None:
        """Print where the runs stand; nobody may be reading any more."""
        self.told = monotonic()
        runs = f" of {self.runs} runs" if self.runs > 1 else ""
        far = "" if self.first is None else f": {100 * self.share:.0f} %{runs}"
        with suppress(OSError):
            print(visible(f"{self.name}{far}, {self._time()}"), file=sys.stderr, flush=True)

    def _time(self) -> str:
        """Return how long the runs took, or will take."""
        passed = monotonic() - self.start
        if self.share >= 1:
            return f"done in {_in_words(passed)}"
        made = self.share - (self.first or 0.0)
        return f"{_in_words(passed)} so far" + (f", about {_in_words(passed / made * (1 - self.share))} left" if made
                                                else "")


def _in_words(seconds: float) -> str:
    """Return a time in a unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
