"""Registries: values by name, and an error that helps with a name that is wrong.

Names that a user's data cannot give to a group, since results use them themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar, cast

from fedfair.plugins.user_files import find_in_file, name_in_file

T = TypeVar("T")


_MOST = 30
"""Of more names than these, an error has the nearest only: who reads all of them has lost the sentence."""
_NEAREST = 6


def unknown(kind: str, name: str, known: Iterable[str], all_of_them: str = "") -> ValueError:
    """Return the error for a name that is not known: it asks for the nearest ones, and has all, or a few of many.

    Args:
        kind: What the name is of.
        name: The name.
        known: All that are known.
        all_of_them: What shows all of them, for example a command.

    Examples:
        >>> unknown("fruit", "appel", ["apple", "pear"])
        ValueError("unknown fruit 'appel': did you mean 'apple'? known are apple, pear")
        >>> unknown("number", "17 a", map(str, range(100)), "`seq 99`")
        ValueError("unknown number '17 a': did you mean '17'? `seq 99` lists them all")
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=2, cutoff=0.51)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    if len(known) <= _MOST:
        return ValueError(f"unknown {kind} {name!r}: {hint}known are {', '.join(known)}")
    if all_of_them:
        return ValueError(f"unknown {kind} {name!r}: {hint}{all_of_them} lists them all")
    nearest = [*dict.fromkeys([*get_close_matches(name, known, _NEAREST, 0), *known])][:_NEAREST]
    return ValueError(f"unknown {kind} {name!r}: {hint}known are {', '.join(sorted(nearest))} and "
                      f"{len(known) - _NEAREST} others")


class Registry(Generic[T]):
    """Values of one kind by name.

    Classes that a user's file defines need no entry: they are found as "file.Class" (`user_files.find_in_file`), if
    they have all the `methods` of the kind.
    """

    def __init__(self, kind: str, methods: tuple[str, ...] = ()) -> None:
        self.kind, self._methods = kind, methods
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
        if name in self._values:
            return self._values[name]
        defined = find_in_file(name) if self._methods and "." in name else None
        if not isinstance(defined, type) or not all(callable(getattr(defined, m, None)) for m in self._methods):
            raise unknown(self.kind, name, self)
        return cast(T, defined)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(sorted({*self._values, *self._makers}))

    def name_of(self, value: object) -> str:
        """Return the name under which the class of an instance is found; raise `ValueError` if it has none."""
        for name, entered in self._values.items():
            if entered is type(value):
                return name
        name_of_file = name_in_file(type(value)) if self._methods else None
        if name_of_file is None:
            raise ValueError(f"{type(value).__name__} is not a registered {self.kind}: define it in the file of your "
                             "method, or register it by name")
        return name_of_file


ALL_GROUPS = "all"
"""The name of all groups together."""

RESERVED = (ALL_GROUPS, "gap", "parity")
"""Results name figures of all groups together by these, as in "accuracy_parity"."""
