"""Twelve tables that nobody prepared, from the file to the page, by what the commands themselves advise.

`fedfair data check` reads the file or says what it needs; its last line is the command of the fit; rows of the same
writing are then decided by `fedfair predict`, and what the page says is held against the table.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.fitting.fit_folder import Story
from tests.simulations.fitting.forms import by_program
from tests.simulations.fitting.unprepared import ROWS, TABLES, Unprepared
from tests.simulations.report.test_browser import browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
__all__ = ["browser"]

BEST = 0.7
"""Accuracy that each table's columns allow by far, where always the same decision gives at most .6."""

MORE = 30
"""Records beyond an interval that holds in 95 of 100 tables."""


def called(*arguments: str) -> tuple[int, str]:
    """Return the code and the output of a command, as one line."""
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "300"})
    return done.exit_code, " ".join(done.output.split())


class Followed:
    """A table whose way was followed.

    Attributes:
        table: The table.
        file: What names it.
        checked: What `fedfair data check` said, at first and with the answers.
        out: The folder of the fit.
    """

    def __init__(self, table: Unprepared, folder: Path) -> None:
        self.table, self.file, self.out = table, table.write(folder), folder / "fit"
        asked = ["data", "check", str(self.file), "--label", table.label, "--group", table.group]
        asked += ["--sql", table.query] if table.query else []
        self.checked = [called(*asked), called(*asked, *table.answers)]
        _, _, following = self.checked[1][1].rpartition("Next: fedfair ")
        command = shlex.split(following)
        command[command.index("--out") + 1] = str(self.out)
        self.code, self.said = called(*command, "--epsilon", "6", "--set", "randomness=seeded")
        assert self.code == 0, self.said


@pytest.fixture(scope="module", params=TABLES)
def followed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """Follow each table once."""
    return Followed(TABLES[request.param], tmp_path_factory.mktemp(request.param))


def test_what_a_person_must_answer_is_asked_for(followed: Followed) -> None:
    (first, asked), (second, _) = followed.checked
    assert second == 0
    name, answer = (*followed.table.answers, "", "")[:2]
    words = answer.split("=")[0] if name == "--set" else answer
    assert words in asked  # the setting, or the encoding, by its name
    assert first in ((2,) if words in ("header_row", "cp1252") else (0,))


def test_figures_of_the_page_are_those_of_the_table(followed: Followed) -> None:
    story, page = Story.read(followed.out), (followed.out / "report.html").read_text()
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert story.favourable == followed.table.good
    assert f"the favourable class is {followed.table.good}" in text
    lines = 3009 if followed.file.name == "tickets.csv" else ROWS  # its names stand nine times more
    assert f"{lines:,}, a number that is public" in text
    accuracy, records = story.figure("accuracy"), story.figure("records")
    assert accuracy.told
    assert accuracy.value > BEST
    assert records.low - MORE <= ROWS <= records.high + MORE
    assert "Unnamed" not in text
    assert "cannot be told" not in story.figure("demographic_parity").text
    assert all(f">{group}<" in page or group in text for group in story.groups)


def test_rows_of_the_same_writing_are_decided(followed: Followed, tmp_path: Path) -> None:
    more = ["--sql", followed.table.query] if followed.table.query else []
    code, said = called("predict", str(followed.out), str(followed.file), *more, "--out", str(tmp_path / "rows.csv"))
    if followed.file.name == "tickets.csv":  # the names of its columns stand among its rows
        assert code == 2
        assert "column 'speed over' has 'speed over' in row 301" in said
        return
    assert code == 0, said
    decided = pd.read_csv(tmp_path / "rows.csv", dtype=str)
    assert len(decided) == ROWS
    right = decided["predicted"].str.lower() == decided[followed.table.label].str.lower()
    accuracy = Story.read(followed.out).figure("accuracy")
    assert accuracy.low - .02 <= right.mean() <= accuracy.high + .02
    plain = tmp_path / "plain.csv"
    decided.drop(columns=[name for name in decided if name == "predicted" or name.startswith("P(")]).to_csv(
        plain, index=False)
    code, rows, said = by_program(followed.out, plain)
    assert (code, rows) == (0, decided["predicted"].tolist()), said


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_of_the_page_is_cut_off(browser, followed: Followed, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((followed.out / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
