"""What a user sees of a command: errors in a sentence, how far it is, results.

On a terminal a bar shows how far a command is; elsewhere a line does now and then, and one when another run is made.
"""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from importlib import metadata
from pathlib import Path
from threading import Semaphore, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from fedfair.datasets.names import visible
from simulations.commands.words import as_options
from simulations.files.atomic_files import refuse_unnameable

if TYPE_CHECKING:
    from simulations.results.comparison import Comparison

P = ParamSpec("P")

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""Errors of a full disk, or of a limit on the size of a file."""

OnRound = Callable[[int, int, str, int, int], None]
"""As `simulations.plans.compare.OnRound`: runs done, all runs, the current run's name, its rounds done, all rounds."""

_EVERY = 10.0  # seconds between lines, at first
_SHARE = 0.1  # of the time so far, between lines later: a day's run has some sixty
_QUIET = 20.0  # seconds between lines at most, while nothing is heard of the work
_FIRST = "preparing: reads the records, makes their features and starts the nodes"
"""What is said before the first round."""
READING = "reading: looks at records, and at what columns hold"
"""What is said of a table before anything is made of it."""


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a command's expected errors into one sentence and exit code 2, without a traceback: raise `typer.Exit`."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        """Run the command; raise `typer.Exit` with code 2 for an expected error."""
        _say_once()
        try:
            for path in _paths(kwargs.values()):
                refuse_unnameable(path)
            command(*args, **kwargs)
        except Exception as error:
            if not _is_expected(error):
                raise
            sentence = visible(_in_words(error), keep="\n")
            Console(stderr=True).print(Text.assemble(("Error:", "red"), f" {sentence}"), soft_wrap=True)
            options = as_options(sentence, kwargs)
            if options:
                Console(stderr=True).print(Text(f"As options of this command, if that is what you mean: {options}"),
                                           soft_wrap=True)
            raise typer.Exit(2) from None

    return guarded


def _say_once() -> None:
    """Print a warning of the log once, however often a file is read."""
    if logging.lastResort is not None:
        logging.lastResort.filters[:] = [_new_alone()]


def _new_alone() -> Callable[[logging.LogRecord], bool]:
    """Return a filter that lets a message of the log pass once."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        """Return whether a message was not printed before."""
        message, before = record.getMessage(), len(said)
        said.add(message)
        return len(said) > before

    return is_new


def _print_version(asked: bool) -> None:
    """Print the version if it is asked for; raise `typer.Exit`."""
    if asked:
        print(f"fedfair {metadata.version('fedfair')}")
        raise typer.Exit


def version(asked: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version,
                                                help="Print the version, and end.")] = False) -> None:
    """Take the options of `fedfair` itself."""


def _is_expected(error: Exception) -> bool:
    """Return whether an error is one that commands end with by design.

    Where nobody reads what is printed any more, as behind `| head`, the command line ends by itself without a word.
    """
    if isinstance(error, BrokenPipeError):
        return False
    if isinstance(error, ValueError | OSError | MemoryError):
        return True
    from fedfair.node.node import ClientError  # here, because importing PyTorch takes a second

    return isinstance(error, ClientError)


def _paths(values: Iterable[object]) -> Iterator[Path]:
    """Yield the paths among a command's arguments and options, also those in lists."""
    for value in values:
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Path))


def _in_words(error: Exception) -> str:
    """Put an error into a sentence, also one of the operating system."""
    if isinstance(error, OSError) and error.errno in _FULL:
        where = f" for {error.filename}" if error.filename else ""
        return (f"there is no room{where} ({str(error.strerror).lower()}): free some, or choose another folder; what "
                "was there before is unchanged")
    if isinstance(error, OSError) and error.strerror and error.filename:
        return (f"{error.filename} cannot be used ({error.strerror.lower()}): choose another file or folder, or change "
                "this one's permissions")
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}): take a smaller model, fewer clients or a smaller batch_size"
    return str(error)


def show(comparison: Comparison, saved: Path | None, json: bool) -> None:
    """Print what finished runs show, and where they were saved."""
    from simulations.results.terminal_table import results_table

    if json:
        print(comparison.to_json(saved))
        return
    Console().print(results_table(comparison))
    if saved is not None:
        print(f"saved in {saved}")


def say(line: str) -> None:
    """Tell a person something, beside what a command prints for programs."""
    Console(stderr=True).print(Text(visible(line)), soft_wrap=True)


@contextmanager
def telling_if_stopped(kept: Callable[[], str]) -> Iterator[None]:
    """Say what is kept if a person stops the command, by Ctrl-C.

    Args:
        kept: Returns what is kept, in a sentence.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(f"Stopped: {kept()}")
        raise


@contextmanager
def telling_of_kept(folder: Path | None, kept: Callable[[], int], runs: int) -> Iterator[None]:
    """Say how many of all runs a folder keeps: before the others are made, and if that is stopped or fails."""
    if 0 < kept() < runs:
        say(f"{folder} holds {kept()} of {runs} runs: going on with the others")
    try:
        yield
    except BaseException:
        if kept():
            say(f"{kept()} of {runs} runs are kept in {folder}: the same command goes on with the others")
        raise


@contextmanager
def showing_progress(first: str = _FIRST) -> Iterator[OnRound]:
    """Show on stderr what is read, if that takes long, and how far all runs are, with the time left.

    Args:
        first: What is said until a round is heard of.
    """
    with showing_runs(first) as on_round, _saying_estimates():
        yield on_round


def showing_runs(first: str) -> AbstractContextManager[OnRound]:
    """Show on stderr how far all runs are, with the time left.

    Args:
        first: What is said until a round is heard of.
    """
    console = Console(stderr=True)
    return _bar(console, first) if console.is_terminal else progress_lines(first=first)


@contextmanager
def _saying_estimates() -> Iterator[None]:
    """Say what is logged about tables before they are read; elsewhere only a memory that is too small is heard of."""
    datasets, estimates = map(logging.getLogger, ("fedfair.datasets", "fedfair.datasets.files.estimate"))
    before, handler = datasets.level, _Saying()
    handler.addFilter(_new_alone())
    datasets.setLevel(logging.INFO)
    estimates.addHandler(handler)
    try:
        yield
    finally:
        estimates.removeHandler(handler)
        datasets.setLevel(before)


class _Saying(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a message; nobody may be reading any more."""
        with suppress(OSError):
            say(record.getMessage())


@contextmanager
def _bar(console: Console, first: str) -> Iterator[OnRound]:
    """Show a bar."""
    percentage = TextColumn("{task.percentage:.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        bar = progress.add_task(first, total=1.0)

        def on_round(done: int, runs: int, name: str, rounds: int, of: int) -> None:
            """Move the bar."""
            description = escape(visible(f"{name} ({done + 1} of {runs})"))
            progress.update(bar, description=description, completed=(done + rounds / of) / runs)

        yield on_round


@contextmanager
def progress_lines(every: float = _EVERY, first: str = _FIRST) -> Iterator[OnRound]:
    """Print lines: one when another run is made, and others from time to time, also while nothing is heard.

    Args:
        every: Seconds between the latter, at first.
        first: What is said until a round is heard of.
    """
    lines, ended = _Lines(first), Semaphore(0)

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

    def __init__(self, first: str) -> None:
        self.start = self.told = monotonic()
        self.name, self.share, self.runs, self.finished = first, 0.0, 1, 0
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
        later = max(every, _SHARE * (self.told - self.start))
        return self.told + (min(later, _QUIET) if self.first is None else later)

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
            return f"done in {_time_in_words(passed)}"
        made = self.share - (self.first or 0.0)
        left = f", about {_time_in_words(passed / made * (1 - self.share))} left" if made else ""
        return f"{_time_in_words(passed)} so far{left}"


def _time_in_words(seconds: float) -> str:
    """Return a time in a unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
