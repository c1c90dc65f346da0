"""The files that `fedfair report` writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.fairness.intervals import Estimate
from simulations import Experiment, run
from simulations.cli import app
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.paper import save_figure
from simulations.drawing.table import Table, latex
from simulations.report import write_report


def report(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


class Identifiers(HTMLParser):
    """Parser that collects all identifiers, and all references to them."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []
        self.meant: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        for name, value in attrs:
            if name == "id":
                self.made.append(value or "")
            elif name in ("aria-labelledby", "data-table", "data-copy"):
                self.meant.update((value or "").split())
            elif name == "href" and (value or "").startswith("#"):
                self.meant.add((value or "")[1:])


@pytest.mark.parametrize("kind", ["comparison_folder", "sweep_folder"])
def test_the_page_needs_nothing_else_and_all_its_references_lead_somewhere(
        kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert "saved" in report(request.getfixturevalue(kind), "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert len(page) < 5e6
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    found = Identifiers()
    found.feed(page)
    assert len(found.made) == len(set(found.made))
    assert found.meant <= set(found.made)


def test_it_says_how_many_chapters_are_done(sweep_folder: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_report([sweep_folder], tmp_path / "r.html", progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]


def test_a_sweeps_report_has_an_overview_and_names_the_trial_that_failed(sweep_folder: Path, tmp_path: Path) -> None:
    report(sweep_folder, "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "digits: all choices" in page
    assert "out of memory" in page
    assert "fedfair sweep config.toml --out again" in page


def test_names_from_the_data_cannot_become_part_of_the_page(people_folder: Path, tmp_path: Path) -> None:
    report(people_folder, "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<b>a" not in page
    assert "<script>alert" not in page
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in page


def test_figures_for_papers_are_png_and_svg_and_tables_are_latex(people_folder: Path, tmp_path: Path) -> None:
    report(people_folder, "--out", tmp_path / "r.html", "--figures", tmp_path / "figures")
    files = {file.name for file in (tmp_path / "figures").iterdir()}
    assert {"accuracy.png", "accuracy.svg", "pareto.png", "training-accuracy.svg", "bounds.png", "ledger.svg",
            "methods.tex", "groups.tex", "ledger-groups.tex"} <= files
    assert (tmp_path / "figures" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "dpsgd-f" in (tmp_path / "figures" / "accuracy.svg").read_text()


@pytest.mark.parametrize("number", [1, 4, 9])
def test_the_legend_of_a_figure_for_papers_lies_within_it(number: int, tmp_path: Path) -> None:
    line = (Point(Estimate(0.0), Estimate(0.5)), Point(Estimate(1.0), Estimate(0.6)))
    lines = tuple(Series(f"a method with a long name, {place}", place, line) for place in range(number))
    svg = save_figure(Figure("f", "t", "", (Panel("p", Scale("x"), Scale("y"), lines),)), tmp_path)[1].read_text()
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    names = re.findall(r'text-anchor: start" x="(-?[\d.]+)" y="([\d.]+)"', svg)
    assert len(names) == number
    assert all(20 < float(x) < width / 2 and float(y) < height for x, y in names)


def test_a_latex_table_escapes_and_gives_the_ends_of_intervals() -> None:
    text = latex(Table("t", "A & B", ("name_1", "value"), [("50 %", Estimate(0.5, 0.4, 0.6)), ("x", float("inf"))]))
    assert r"name\_1 & value \\" in text
    assert r"50 \% & 0.500 [0.400, 0.600] \\" in text
    assert r"x & $\infty$ \\" in text
    assert r"A \& B" in text


def test_without_matplotlib_it_says_what_to_install(comparison_folder: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["report", str(comparison_folder), "--figures", str(tmp_path / "f")])
    assert result.exit_code == 2
    assert "fedfair[figures]" in result.output
    missing = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert (missing.exit_code, "no config.toml" in missing.output) == (2, True)


def test_a_run_of_which_nothing_was_measured_has_a_report_of_its_ledger(tmp_path: Path) -> None:
    run(Experiment(strategy="dpsgd", steps=1, batch_size=32, hidden=(4,), figures="none", randomness="system")).save(
        tmp_path / "unmeasured")
    assert "saved" in report(tmp_path / "unmeasured")
    page = (tmp_path / "unmeasured" / "report.html").read_text()
    assert "Nothing was measured" in page
    assert "Accuracy of each group" not in page
