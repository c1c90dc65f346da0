"""What a user sees of a command: errors in a sentence, progress, results."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from fedfair.datasets.names import visible
from simulations.commands.words import as_options
from simulations.files.atomic_files import refuse_unnameable

if TYPE_CHECKING:
    from simulations.results.comparison import Comparison

P = ParamSpec("P")

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""Errors of a full disk, or of a limit on the size of a file."""


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
            options = as_options(sentence)
            if options:
                Console(stderr=True).print(Text(f"As options of this command, if that is what you mean: {options}"),
                                           soft_wrap=True)
            raise typer.Exit(2) from None

    return guarded


def _say_once() -> None:
    """Print a warning of the log once, however often a file is read."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        """Return whether a message was not printed before."""
        message, before = record.getMessage(), len(said)
        said.add(message)
        return len(said) > before

    if logging.lastResort is not None:
        logging.lastResort.filters[:] = [is_new]


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
