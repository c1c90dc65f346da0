"""Names from data do nothing in a terminal or a spreadsheet, and are not lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.columns.cell import from_spreadsheet_cell, spreadsheet_cell
from fedfair.datasets.names import visible
from tests.for_each import for_each


@for_each(("name", "shown"), [
    ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"), ("a\rb\nc\td", "a\\x0db\\x0ac\\x09d"), ("\x9b2J", "\\x9b2J"),
    ("\x07\x08\x7f", "\\x07\\x08\\x7f"), ("a\u202eb", "a\\u202eb"), ("a\u2028b", "a\\u2028b"), ("\ud800", "\\ud800"),
    ("[red] :car: é \u200c👩\u200d🦰", "[red] :car: é \u200c👩\u200d🦰")])
def test_what_a_terminal_would_obey_is_shown(name: str, shown: str) -> None:
    assert visible(name) == shown


def test_lines_of_a_text_are_kept_where_that_is_asked_for() -> None:
    assert visible("a\n\x1bb", keep="\n") == "a\n\\x1bb"


@for_each("name", ["=1+1", "+cmd|' /C calc'!A0", "-a", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''+a"])
def test_what_starts_like_a_formula_gets_an_apostrophe_that_can_be_taken_off(name: str) -> None:
    assert spreadsheet_cell(name) == f"'{name}"
    assert from_spreadsheet_cell(f"'{name}") == name


@for_each("value", ["-1", "+2.5", "-1e-3", "men", "'men'", "", "a=b", -1.5, 3, None, float("inf")])
def test_numbers_and_other_names_stay_as_they_are(value: object) -> None:
    assert spreadsheet_cell(value) == value
    assert from_spreadsheet_cell(value) == value


@given(st.text() | st.text("=+-@'\t1a"))
def test_every_name_comes_back(name: str) -> None:
    assert visible(visible(name)) == visible(name)
    assert from_spreadsheet_cell(spreadsheet_cell(name)) == name
