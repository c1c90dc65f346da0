"""Each statement of the pages for who publishes, audits and attacks a result names a test that there is.

A statement is a paragraph, an entry of a list, or a row of a table. It names tests as `tests/file.py::test_name`
(`::test_name` alone is in the file named before it), or is marked "(assumed)". These alone need neither: headings and
code, the first paragraph of a page, paragraphs that end with a colon and lead to a list or to code, and the rows of a
table below a paragraph that names tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.for_each import for_each

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("publishing", "auditing", "attacking")]
LINES = 120
"""Of a page, at most."""

HAZARDS = ROOT / "tests" / "hazards" / "test_hazards.py"
CHECKS = ROOT / "tests" / "hazards" / "checks.py"
NAMED = re.compile(r"`(tests/[\w/]+\.py)?::(\w+(?:\[\w+\])?)`")


class Block(NamedTuple):
    """Part of a page: a "heading", "code", a "paragraph", an "entry" of a list, or a "row" of a table; its text."""

    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the parts of a page in their order, without the head of a table."""
    found: list[Block] = []
    goes_on = False
    parts = re.split(r"^(```.*?^```)$", page, flags=re.MULTILINE | re.DOTALL)
    for part in parts:
        if part.startswith("```"):
            found.append(Block("code", part))
            continue
        for line in part.splitlines():
            if re.match(r"#+ ", line):
                found.append(Block("heading", line))
            elif re.match(r"\|[-|: ]+\|$", line):
                found.pop()
            elif line.startswith("|"):
                found.append(Block("row", line))
            elif re.match(r" *(- |\d+\. )", line):
                found.append(Block("entry", line.strip()))
            elif line.strip() and goes_on and found[-1].kind in ("paragraph", "entry"):
                found[-1] = found[-1]._replace(text=f"{found[-1].text} {line.strip()}")
            elif line.strip():
                found.append(Block("paragraph", line.strip()))
            goes_on = bool(line.strip())
    return found


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return file and name of each test that a text names; the file is "" where none is named before."""
    found, file = list[tuple[str, str]](), ""
    for named, name in NAMED.findall(text):
        file = named or file
        found.append((file, name))
    return found


def unheld(page: str) -> list[str]:
    """Return the statements of a page that name no test and are not marked as assumed."""
    parts, found = blocks(page), list[str]()
    for at, (kind, text) in enumerate(parts):
        following = parts[at + 1].kind if at + 1 < len(parts) else ""
        above = next((part for part in reversed(parts[:at]) if part.kind != "row"), Block("", ""))
        if (kind in ("heading", "code") or named_tests(text) or "(assumed)" in text
                or (kind == "paragraph" and at == 1 and parts[0].kind == "heading")
                or (kind == "paragraph" and text.endswith(":") and following in ("code", "entry"))
                or (kind == "row" and above.kind == "paragraph" and named_tests(above.text))):
            continue
        found.append(text)
    return found


@cache
def functions(file: Path) -> frozenset[str]:
    """Return the names of the functions of a file, but for those within others."""
    return frozenset(part.name for part in ast.parse(file.read_text()).body if isinstance(part, ast.FunctionDef))


def missing(page: str) -> list[tuple[str, str]]:
    """Return the tests that a page names and that are not there; in brackets may be one of the checks of hazards."""
    return [(file, name) for _, text in blocks(page) for file, name in named_tests(text)
            if not file or not name.startswith("test_") or not (ROOT / file).is_file()
            or name.partition("[")[0] not in functions(ROOT / file)
            or ("[" in name and (ROOT / file != HAZARDS or name.partition("[")[2][:-1] not in functions(CHECKS)))]


def planted(source: str) -> Mapping[str, int]:
    """Return the hazard of each mistake that test_hazards.py plants, 0 for one that is not on the list."""
    table = next(part.value for part in ast.parse(source).body if isinstance(part, ast.Assign)
                 and isinstance(part.targets[0], ast.Name) and part.targets[0].id == "MUTATIONS")
    assert isinstance(table, ast.List)
    found: dict[str, int] = {}
    for entry in table.elts:
        assert isinstance(entry, ast.Call)
        numbers, plant = entry.args[:2]
        assert isinstance(plant, ast.Name)
        (found[plant.id],) = ast.literal_eval(numbers)
    return found


def tabled(page: str) -> Mapping[str, int]:
    """Return the hazard of each planted mistake by the page's table: the names in its second column."""
    rows = [text.split("|")[1:3] for kind, text in blocks(page) if kind == "row"]
    return {name: int(number[1]) if (number := re.match(r"(\d+)", hazard.strip())) else 0
            for hazard, mistakes in rows for name in re.findall(r"`(\w+)`", mistakes)}


def test_every_page_is_short() -> None:
    assert {page.name: count for page in PAGES if (count := len(page.read_text().splitlines())) > LINES} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_statement_names_a_test_or_is_assumed(page: Path) -> None:
    assert unheld(page.read_text()) == []
    assert sum(bool(named_tests(text)) for _, text in blocks(page.read_text())) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_is_named_is_there(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_the_table_of_hazards_has_every_planted_mistake() -> None:
    page = (ROOT / "docs" / "attacking.md").read_text()
    mistakes = planted(HAZARDS.read_text())
    assert tabled(page) == mistakes
    assert {*mistakes} <= functions(HAZARDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_code_lead_to_code(page: Path) -> None:
    for name in re.findall(r"`((?:fedfair|simulations|strategies)(?:\.\w+)+)`", page.read_text()):
        path = ROOT / Path(*name.split("."))
        assert path.with_suffix(".py").is_file() or path.name in functions(path.parent.with_suffix(".py")), name


HELD = """# A page

What it is for. No test.

## Part

These lead to a list:

- One, which holds
  on two lines. Test: `tests/test_auditing_pages.py::test_every_page_is_short`
- Two (assumed).

The table. Test: `tests/test_auditing_pages.py::test_every_page_is_short`, `::test_names_of_code_lead_to_code`

| head | of a table |
|---|---|
| a | row |
"""


@for_each(("before", "after", "found"), [
    ("", "", []),
    ("on two lines. Test", "on two lines.\n- Another. Test", ["- One, which holds on two lines."]),
    ("Two (assumed).", "Two.", ["- Two."]),
    ("These lead to a list:", "They lead to a list.", ["They lead to a list."]),
    ("## Part\n", "## Part\n\nNo list follows:\n", ["No list follows:"]),
    ("for. No test.\n", "for.\n\nA second paragraph.\n", ["A second paragraph."]),
    ("The table. Test: `tests/test_auditing_pages.py::test_every_page_is_short`, `::test_names_of_code_lead_to_code`",
     "The table (assumed).", ["| a | row |"])])
def test_a_statement_without_a_test_is_found(before: str, after: str, found: list[str]) -> None:
    assert unheld(HELD.replace(before, after) if before else HELD) == found


@for_each("wrong", ["tests/test_auditing_pages.py::test_that_is_gone", "tests/test_gone.py::test_it",
                    "tests/test_auditing_pages.py::unheld", "::test_every_page_is_short",
                    "tests/hazards/test_hazards.py::test_the_checks_pass[a_check_that_is_gone]"])
def test_a_test_that_is_not_there_is_found(wrong: str) -> None:
    assert missing(HELD) == []
    assert missing(HELD.replace("(assumed)", f"`{wrong}`")) == [tuple(wrong.split("::"))]
