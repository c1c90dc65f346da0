"""Names from the data do nothing in a terminal, a page or a spreadsheet."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.drawing.figure import Figure, Panel, Scale
from simulations.drawing.svg import drawing
from simulations.drawing.table import Table, latex
from simulations.files.saved_files import from_csv, to_csv

GROUPS = ("\x1b[2J[red]me", "\x9b31m:car:", "=cmd|x")
LABELS = ("=1+1", "@SUM")
SETTINGS = ("model=logistic", "epochs=1", "batch_size=64", "delta=1e-4")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file whose name, column names, groups and classes are all hostile."""
    path = tmp_path_factory.mktemp("data") / "=[bold]data.csv"
    rows = [(20 + i % 40, GROUPS[i % 3], "\x1b]0;x\x07" if i % 5 else "[red]", LABELS[i // 3 % 2]) for i in range(300)]
    pd.DataFrame(rows, columns=["age", "\x1b[31mwho", "[blue]\x08kind", "=out"]).to_csv(path, index=False)
    return path


def said(*words: str, fails: bool = False) -> str:
    """Return what a command prints; nothing in it may steer a terminal."""
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code == 0) is not fails, result.output
    assert not set(result.output) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
    return result.output


@pytest.fixture(scope="module")
def folder(file: Path) -> Path:
    """Return the folder of a run on the file."""
    out = file.parent / "out"
    shown = said("run", "--csv", str(file), "--label", "=out", "--group", "\x1b[31mwho", "--strategy", "dpsgd",
                 *(part for setting in SETTINGS for part in ("--set", setting)), "--out", str(out))
    assert "=[bold]data: test accuracy" in shown
    assert r"\x1b[2J[r" in shown
    assert r"\x9b31m:" in shown
    return out


def test_commands_print_names_as_they_are_and_control_characters_as_escapes(file: Path, folder: Path) -> None:
    for shown in (said("ledger", str(folder)), said("data", "check", str(file), "--label", "=out", "--group",
                                                    "\x1b[31mwho")):
        for name in (r"\x1b[2J[red]me", r"\x9b31m:car:", "=cmd|x"):
            assert name in " ".join(shown.split())
    assert r"[blue]\x08kind" in shown
    assert r"[red]\x1b" in said("data", "check", str(file), "--label", "[red]\x1bnone", "--group", "age", fails=True)


def test_the_report_holds_no_control_characters(folder: Path) -> None:
    said("report", str(folder))
    text = (folder / "report.html").read_text()
    assert not set(text) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
    assert r"\x1b[2J[red]me" in text


def test_a_fit_shows_names_as_they_are(file: Path) -> None:
    """Its tables put an apostrophe before them, which its page does not, nor before a bin from -5 on."""
    rows = pd.read_csv(file)
    rows.assign(age=rows["age"] - 40).to_csv(file.parent / "fit.csv", index=False)
    said("fit", str(file.parent / "fit.csv"), "--label", "=out", "--group", "\x1b[31mwho", "--epsilon", "20", "--out",
         str(file.parent / "fit"))
    page = (file.parent / "fit" / "report.html").read_text()
    assert "=cmd|x" in page
    assert not re.search("(&#39;|')[-=@+][\\w]", page.split("<main", 1)[1].split("<script", 1)[0])


def test_drawings_and_latex_hold_no_control_characters() -> None:
    figure = Figure("f", "\x1bt", "\x1bc", (Panel("\x1bp", Scale("\x1bx"), Scale("y"), ()),))
    assert "\x1b" not in drawing(figure)
    assert "\x1b" not in latex(Table("t", "\x1b", ("\x1b",), [("\x1b",)]))


def test_a_summary_is_no_formula_and_gives_the_name_back(folder: Path) -> None:
    with (folder / "summary.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    assert row["dataset"] == "'=[bold]data"
    assert from_csv(folder / "summary.csv")["dataset"][0] == "=[bold]data"


def test_predictions_are_no_formulas(file: Path, folder: Path) -> None:
    out = file.parent / "predicted.csv"
    said("predict", str(folder), str(file), "--out", str(out))
    predicted = pd.read_csv(out, dtype=str)["predicted"]
    assert set(predicted) <= {f"'{label}" for label in LABELS}


def test_numbers_and_missing_cells_are_written_as_ever(tmp_path: Path) -> None:
    frame = pd.DataFrame({"=a": ["+x", "-1", None], "n": [-1.5, float("inf"), 1e-9], "b": [True, False, None]})
    plain = frame.rename(columns={"=a": "'=a"}).replace({"'=a": {"+x": "'+x"}})
    assert to_csv(frame) == plain.to_csv(index=False)
    (tmp_path / "f.csv").write_text(to_csv(frame))
    assert list(from_csv(tmp_path / "f.csv")) == ["=a", "n", "b"]
    assert from_csv(tmp_path / "f.csv")["=a"][0] == "+x"
    assert to_csv(pd.DataFrame()) == pd.DataFrame().to_csv(index=False)
