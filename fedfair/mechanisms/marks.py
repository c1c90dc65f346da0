"""Marks on each place where noise is added or a batch is drawn, to which somebody else's tool can attach.

An audit by replay ("Re:cord-play", arXiv 2602.17454) records what every marked release returned on one table, and
returns it again on a neighbour. Then all that leaves must be the same, since only releases may tell of the records; and
what went into each release shows how far one record moves it. Amplification by sampling holds for batches that are
drawn as the ledger assumes, so the audit counts these too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

Listener = Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]
"""Called with a marked function's name, its arguments by name, and what computes it; what it returns is taken."""

_of_releases: list[Listener] = []
_of_batches: list[Listener] = []


def releases(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """Mark a function that adds noise: what goes in is secret, what comes out is released.

    A marked function that another one calls is part of the other's release.

    Args:
        function: The function.

    Examples:
        >>> @releases
        ... def noisy(count: float, deviation: float) -> float:
        ...     return count + 0.5
        >>> with attached(lambda name, inputs, compute: (name, dict(inputs), compute())):
        ...     noisy(1.0, deviation=2.0)
        ('noisy', {'count': 1.0, 'deviation': 2.0}, 1.5)
    """
    return _marked(function, _of_releases)


def samples(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """Mark a function that draws a batch as the ledger assumes.

    Args:
        function: The function.

    Examples:
        >>> @samples
        ... def drawn(rate: float) -> list[int]:
        ...     return [3, 7]
        >>> with attached(lambda *_: None, batches=lambda name, inputs, compute: compute()[:1]):
        ...     drawn(0.1)
        [3]
    """
    return _marked(function, _of_batches)


def _marked(function: Callable[Inputs, Output], listeners: list[Listener]) -> Callable[Inputs, Output]:
    """Return a function that lets whoever is attached hear of each call."""
    signature = inspect.signature(function)

    @wraps(function)
    def marked(*args: Inputs.args, **named: Inputs.kwargs) -> Output:
        """Call the listener in place of the function."""
        if not listeners:
            return function(*args, **named)
        listener, given = listeners.pop(), signature.bind(*args, **named).arguments
        try:
            heard: Output = listener(function.__name__, given, lambda: function(*args, **named))
        finally:
            listeners.append(listener)
        return heard

    return marked


@contextmanager
def attached(listener: Listener, batches: Listener | None = None) -> Iterator[None]:
    """Let a listener hear of every release of this process meanwhile, and another one of every batch.

    Args:
        listener: What is called in place of each function that releases.
        batches: What is called in place of each function that draws a batch; None to listen to none.

    Raises:
        RuntimeError: If another one is attached.
    """
    if _of_releases:
        raise RuntimeError("somebody listens to releases already: detach them first")
    _of_releases.append(listener)
    _of_batches.extend([] if batches is None else [batches])
    try:
        yield
    finally:
        _of_releases.clear()
        _of_batches.clear()
