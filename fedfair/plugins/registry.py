"""Registries: values by name, and an error that helps with a name that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

T = TypeVar("T")


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for a `name` that is not among the `known` ones; it names the nearest first."""
    known = sorted(known)
    near = get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return ValueError(f"unknown {kind} {name!r}: {hint}known are {', '.join(known)}")


class Registry(Generic[T]):
    """Values of one kind by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._values: dict[str, T] = {}
        self._makers: dict[str, Callable[[], T]] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters a value under `name`."""

        def enter(value: T) -> T:
            """Enter a value, and return it unchanged."""
            self._values[name] = value
            return value

        return enter

    def register_later(self, name: str, make: Callable[[], T]) -> None:
        """Enter what `make` returns under `name`; `make` is called when the value is first looked up."""
        self._makers[name] = make

    def __getitem__(self, name: str) -> T:
        """Return the value called `name`; raise `ValueError` with the nearest names if there is none."""
        if name not in self._values and name in self._makers:
            self._values[name] = self._makers[name]()
        if name not in self._values:
            raise unknown(self.kind, name, self)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted({*self._values, *self._makers}))

    def name_of(self, value: object) -> str:
        """Return the name under which the class of an instance is entered; raise `ValueError` if it is not."""
        for name, entered in self._values.items():
            if entered is type(value):
                return name
        raise ValueError(f"{type(value).__name__} is not a registered {self.kind}")
