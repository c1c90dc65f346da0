"""Every code block of the README, the tutorials and other pages runs, in reading order.

`tests/test_snippets.py` reads what needs several machines, or is for reading.
"""

from __future__ import annotations

import difflib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
OTHERS = [ROOT / "docs" / f"{name}.md" for name in ("index", "attacking", "hospitals", "node-policy", "publishing")]
PAGES = [ROOT / "README.md", *OTHERS, *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
LABELS = {"README.md": "hired", "publishing.md": "hired", "attacking.md": "answer"}
"""Pages about a table that a reader has already, people.csv, and its label."""
IN_REPOSITORY = "run in the repository"

ELSEWHERE = {
    "pip install": "by .ci/run, in a fresh environment",
    "python3 -m venv": "by .ci/run",
    "flwr run .": "by tests/simulations/engines/test_flower.py, and on SuperNodes below",
}
"""What is not run here, by what such a block holds, and where it is run instead."""

SHORTER = {
    "epochs=60, batch_size=128": "epochs=5, batch_size=128",
    "fedfair compare --seeds 2 --out": "fedfair compare --seeds 2 --set epochs=2 --out",
    "--seeds 3 --set epochs=10 --set target_epsilon=4": "--seeds 3 --set epochs=2 --set target_epsilon=4",
    "--seeds 1 --set epochs=10 --set target_epsilon=8": "--seeds 1 --set epochs=2 --set target_epsilon=8",
    "--preset yang2024 --seeds 3": "--preset yang2024 --seeds 1 --set epochs=0.05 --set gs-dp-sgd.epochs=1",
    "fedfair audit --strategy dpsgd-f --epsilon 3": "fedfair audit --strategy dpsgd-f --epsilon 3 --canaries 400 "
                                                    "--set steps=20 --set hidden=[8]",
    "fedfair audit --strategy dpsgd --epsilon 1 --seeds 5": "fedfair audit --strategy dpsgd --epsilon 1 --seeds 1 "
                                                            "--canaries 200 --set steps=20 --set hidden=[8]",
    "--strategy moments --epsilon 3 --seeds 5": "--strategy moments --epsilon 3 --seeds 1",
    "--attack membership": "--attack membership --set steps=20 --set hidden=[8]",
    "--attack releases": "--attack releases --set steps=20 --set hidden=[8]",
    "--attack folder --runs 8": "--attack folder --runs 8 --set steps=5 --set hidden=[8]",
    '"target_epsilon": 3.0})': '"target_epsilon": 3.0, "steps": 20})',
}
"""What would take minutes, and what is run instead."""


class Block(NamedTuple):
    """Fenced block: its language, its title if it has one, and its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page; those of `sh` are for reading."""
    found = re.findall(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```$', page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found]


def own_table() -> pd.DataFrame:
    """Return a table such as a reader of the README has: hired or not, by sex."""
    draws = np.random.default_rng(0)
    sex, years = draws.choice(["f", "m"], 2_000), draws.integers(0, 30, 2_000)
    hired = draws.random(2_000) < 1 / (1 + np.exp(2 - 0.15 * years - 0.5 * (sex == "m")))
    return pd.DataFrame({"years": years, "sex": sex, "hired": hired.astype(int)})


def runs_elsewhere(block: Block) -> bool:
    """Return whether another test runs the block."""
    return any(words in block.text for words in ELSEWHERE) and block.title != IN_REPOSITORY


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                          request: pytest.FixtureRequest, forked: Path) -> None:
    if re.search("dataset[ =]adult", "".join(block.text for block in blocks(page) if block.language == "bash")):
        request.getfixturevalue("data_dir")
    monkeypatch.chdir(tmp_path)
    if page.name in LABELS:
        own_table().rename(columns={"hired": LABELS[page.name]}).to_csv(tmp_path / "people.csv", index=False)
    session: dict[str, object] = {"__name__": "session"}
    for block in blocks(page):
        if block.language == "bash" and not runs_elsewhere(block):
            shell(block.text, ROOT if block.title == IN_REPOSITORY else tmp_path, forked)
        elif block.title and block.language != "bash":
            (tmp_path / block.title).parent.mkdir(exist_ok=True)
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "python" and "class QuantileClip" not in block.text:  # that is tests/test_readme.py's
            text = shortened(block.text)
            exec(compile(text, f"{page.name}, a block", "exec"), session)  # noqa: S102 - our own documents


@pytest.mark.slow
def test_an_app_becomes_private_in_the_lines_that_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "tutorials" / "existing-app.md"
    private = "".join(block.text for block in blocks(page) if block.language == "python")
    plain = re.sub(r".*# new\n", "", private).replace("# was: ", "")
    changed = [line[0] for line in difflib.ndiff(plain.splitlines(), private.splitlines())]
    told = [line for line in private.splitlines() if "# was: " in line]
    assert "Eight new lines, two of which replace old" in page.read_text()
    assert changed.count("+") - len(told) == 8
    assert changed.count("-") == len(told) == 2
    exec(compile(plain, "the plain app", "exec"), {"__name__": "session"})  # noqa: S102 - our own documents
    assert "guaranteed" not in capsys.readouterr().out
    exec(compile(private, "the private app", "exec"), {"__name__": "session"})  # noqa: S102
    assert "guaranteed: 5.483" in capsys.readouterr().out


def shortened(text: str) -> str:
    """Return a block that takes seconds."""
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def shell(text: str, folder: Path, forked: Path) -> None:
    """Run a block as bash would, at ports of its own; a failure shows its output."""
    environment = {**os.environ, "PATH": f"{forked}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                   "COLUMNS": "80", "PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0"}
    text = with_own_ports(shortened(text))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def with_own_ports(text: str) -> str:
    """Return a block with free ports in place of those that its page names, 19091 or 1920$number."""
    for name in sorted({*re.findall(r"\b19\d{3}\b", text)}):
        text = text.replace(name, str(free_ports(1)[0]))
    text = re.sub(r"\b19\d\d\$(node|number)", r"${ports[$\1]}", text)
    return f"ports=({' '.join(map(str, free_ports(3)))})\n{text}" if "${ports[" in text else text


def test_the_pages_have_blocks_and_none_is_in_an_unknown_language() -> None:
    for page in PAGES:
        found = blocks(page)
        assert found, page
        assert {block.language for block in found} <= {"python", "bash", "toml", "sh", "text"}
        assert len(found) == page.read_text().count("\n```") // 2 + page.read_text().startswith("```")


def test_the_tutorials_are_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs")
        assert path.parts[0] == "results" or str(path) in navigation


def test_every_page_of_results_is_listed_by_a_title_of_its_own(tmp_path: Path) -> None:
    hook = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "results_navigation.py")))
    titles, paths = zip(*hook.pages(ROOT / "docs"), strict=True)
    assert set(paths) == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs" / "results").rglob("*.md")}
    assert len(set(titles)) == len(titles)
    for name in ("b", "a"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "README.md").write_text(f"# Nobody 2026, Table {name}: a title\n")
    typed = [{"Start": "index.md"}, {"Measured": [{"All": "results.md"}]}]
    assert hook.on_config(SimpleNamespace(nav=typed, docs_dir=str(tmp_path))).nav[1]["Measured"] == [
        {"All": "results.md"}, {"Nobody 2026, Table a": "results/a/README.md"},
        {"Nobody 2026, Table b": "results/b/README.md"}]
