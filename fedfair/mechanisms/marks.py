"""A mark on each place where noise is added, to which somebody else's tool can attach.

An audit by replay ("Re:cord-play", arXiv 2602.17454) records what every marked function returned on one
table, and returns it again on a neighbour. Then all that leaves must be the same, since only releases may tell of the
records; and what went into each release shows how far one record moves it.
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
"""Called with a release's name, its arguments by name, and what computes it; what it returns is released."""

_listeners: list[Listener] = []


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
    signature = inspect.signature(function)

    @wraps(function)
    def marked(*args: Inputs.args, **named: Inputs.kwargs) -> Output:
        """Let whoever is attached hear of the release."""
        if not _listeners:
            return function(*args, **named)
        listener, given = _listeners.pop(), signature.bind(*args, **named).arguments
        try:
            heard: Output = listener(function.__name__, given, lambda: function(*args, **named))
        finally:
            _listeners.append(listener)
        return heard

    return marked


@contextmanager
def attached(listener: Listener) -> Iterator[None]:
    """Let a listener hear of every release of this process meanwhile.

    Args:
        listener: What is called in place of each marked function.

    Raises:
        RuntimeError: If another one is attached.
    """
    if _listeners:
        raise RuntimeError("somebody listens to releases already: detach them first")
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
