"""A test over a table tries every row, and fails in the one that is wrong, which it names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.for_each import for_each


def test_every_row_is_tried_under_every_row_of_another_table() -> None:
    seen: list[tuple[int, str, int]] = []

    @for_each("number", [1, 2])
    @for_each(("text", "length"), [("a", 1), ("bc", 2)])
    def keep(number: int, text: str, length: int) -> None:
        seen.append((number, text, length))

    keep()
    assert seen == [(1, "a", 1), (1, "bc", 2), (2, "a", 1), (2, "bc", 2)]


@for_each("row", ["a", "b"])
@pytest.mark.parametrize("case", [1, 2])
def test_other_parameters_and_fixtures_are_given_as_to_any_test(case: int, row: str, request: pytest.FixtureRequest
                                                                ) -> None:
    assert case in (1, 2)
    assert request.node.name.endswith(f"[{case}]")
    assert "row" not in request.fixturenames


def unlike_b(value: str) -> None:
    assert value != "b"


def refused(value: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        int("1" if value == "b" else value)


@for_each("check", [unlike_b, refused])
def test_the_row_that_fails_is_named(check: Callable[[str], None]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)) as found:
        for_each("value", ["a", "b", "c"])(check)()
    assert found.value.__notes__ == ["in row 2 of 3: value = 'b'"]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="the table has no row"):
        for_each("value", [])
