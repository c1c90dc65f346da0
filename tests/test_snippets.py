"""Commands, settings and files in the code blocks of all pages are such as the programs know, run or not.

`tests/test_documents.py` runs those that one machine can run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import typer
import yaml

from simulations.cli import app
from simulations.plans.sweep import Sweep
from simulations.settings.names import pairs

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
ENDS = ("|", "||", "&&", "&", ";", ">")
"""Words after which a line of a shell holds something else."""


class Call(NamedTuple):
    """A command on a page.

    Attributes:
        page: Name of the page.
        words: The command, without its program.
    """

    page: str
    words: list[str]


def code(page: Path, languages: str) -> list[str]:
    """Return the blocks of a page in some languages."""
    found = re.findall(rf"^```(?:{languages})\b.*?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [str(each) for each in found]


def calls(program: str) -> Iterator[Call]:
    """Yield the calls of a program in the blocks of all pages."""
    for page in PAGES:
        for block in code(page, "bash|sh|yaml"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                for found in re.findall(rf"(?:^|&& |; |entrypoint: |do )\s*{program} (.*)", line):
                    words = shlex.split(found, comments=True)
                    ends = [words.index(end) for end in ENDS if end in words]
                    yield Call(page.name, words[:min(ends, default=len(words))])


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the arguments of a command of fedfair by name; raise `click.ClickException` for what it does not know."""
    command: Any = typer.main.get_command(app)
    name = "fedfair"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    made: dict[str, Any] = command.make_context(name, [*words]).params
    return made


def test_commands_of_fedfair_are_known_with_their_options_and_settings() -> None:
    found = [*calls("fedfair")]
    assert len(found) > 50
    for call in found:
        pairs(parsed(call.words).get("set_") or [])
    with pytest.raises(click.ClickException):
        parsed(["fit", "people.csv", "--label", "hired", "--grup", "sex"])


def test_modules_that_pages_start_are_there() -> None:
    found = [*calls("python -m")]
    assert len(found) > 4
    for call in found:
        assert find_spec(call.words[0]), call


def test_sweeps_of_pages_are_sweeps(tmp_path: Path) -> None:
    found = [block for page in PAGES for block in code(page, "toml") if "strategies" in block or "[search" in block]
    assert len(found) >= 3
    for number, block in enumerate(found):
        (tmp_path / f"{number}.toml").write_text(block)
        assert Sweep.read(tmp_path / f"{number}.toml").datasets


def test_manifests_of_pages_are_yaml_and_start_commands_of_fedfair() -> None:
    found = [yaml.safe_load(block) for page in PAGES for block in code(page, "yaml")]
    assert [each["kind"] for each in found] == ["RayJob"]
    program, *words = shlex.split(found[0]["spec"]["entrypoint"])
    assert program == "fedfair"
    assert parsed(words)
