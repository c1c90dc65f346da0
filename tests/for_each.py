"""One statement over a table of inputs, said once: one test, whose failure names the row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def for_each(names: str | Sequence[str], table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a test hold for every row of a table.

    It is read as `pytest.mark.parametrize`, but is one case: fixtures are made once, for all rows, and the first row
    that fails ends it. Take `parametrize` where a row needs a fixture of its own, or takes long.

    Args:
        names: Parameters of the test: one, to which each row is given, or some, among which each row is dealt.
        table: The rows.
    """
    rows = [{names: row} if isinstance(names, str) else dict(zip(names, row, strict=True)) for row in table]
    if not rows:
        raise ValueError("the table has no row: the test would hold of nothing")

    def over_rows(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def over_all(**fixtures: Any) -> None:
            __tracebackhide__ = True
            for number, row in enumerate(rows, 1):
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in row {number} of {len(rows)}: "
                                   + ", ".join(f"{name} = {value!r}" for name, value in row.items()))
                    raise

        others = [parameter for name, parameter in signature.parameters.items() if name not in rows[0]]
        over_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined] # for the fixtures
        return over_all

    return over_rows
