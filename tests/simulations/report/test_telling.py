"""Panels in which nothing can be compared are left out, and only those."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedfair.fairness.intervals import Estimate
from simulations import Experiment, run
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.report.contents import chapter, report, telling
from simulations.report.page import page
from simulations.results.run_folder import read
from tests.simulations.report.conftest import QUICK, saved_comparison


def series(name: str, *places: tuple[float, float], joined: bool = True) -> Series:
    return Series(name, 0, tuple(Point(Estimate(x), Estimate(y)) for x, y in places), joined)


def figure(*panels: tuple[Series, ...], epsilon: str = "") -> Figure:
    made = tuple(Panel(str(number), Scale("x", epsilon="x" in epsilon), Scale("y", epsilon="y" in epsilon), lines)
                 for number, lines in enumerate(panels))
    return Figure("f", "t", "Caption.", made)


def test_marks_need_two_places_and_along_epsilons_two_epsilons() -> None:
    one, two = ((series("a", (1.0, 0.5), joined=False), series("b", (1.0, y), joined=False)) for y in (0.5, 0.6))
    assert telling(figure(one)) is None
    assert telling(figure(two)) is not None
    assert telling(figure(two, epsilon="x")) is None


def test_of_epsilons_equal_curves_and_repeated_panels_are_left_out() -> None:
    low, high = (series(name, (0.0, 0.0), (1.0, end)) for name, end in (("a", 1.0), ("b", 2.0)))
    six = tuple(series(str(number), (0.0, 0.0), (1.0, 1.0)) for number in range(6))
    assert telling(figure(six, epsilon="y")) is None
    assert telling(figure(six)) is not None
    kept = telling(figure((low, high), (low, high), (low,), epsilon="y"))
    assert kept is not None
    assert [panel.title for panel in kept.panels] == ["0", "2"]
    assert kept.caption == "Caption. Left out: 1 panel in which nothing differs."
    assert telling(figure((series("a", (0.0, 1.0)),))) is None


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one run that is evaluated once."""
    return run(Experiment(**{**QUICK, "eval_every": 100}, strategy="dpsgd")).save(
        tmp_path_factory.mktemp("alone") / "run")


def test_the_report_of_one_run_has_no_trade_off_and_no_training_of_one_point(alone: Path) -> None:
    made = chapter(read([alone])[1][0], "part-1")
    assert "pareto" not in [figure.name for figure in made.figures()]
    assert made.training == []
    ledger = next(figure for figure in made.figures() if figure.name == "ledger")
    assert [panel.title for panel in ledger.panels] == ["guaranteed to every record"]


@pytest.mark.parametrize("shown", [0, 1])
def test_the_overview_of_choices_with_one_epsilon_has_no_panel_along_epsilons(alone: Path, shown: int) -> None:
    """Two choices that come out alike (0) leave no figure at all; other accuracies (1) leave those panels."""
    (first,) = read([alone])[1]
    accuracy = first.metrics["metric"] == "accuracy"
    other = first.metrics.assign(value=first.metrics["value"].where(~accuracy, first.metrics["value"] / 2))
    second = replace(first, chosen={"learning_rate": 0.1}, metrics=other if shown else first.metrics)
    made = report([], [first, second], lambda *progress: None)
    (overview,) = made.overviews
    assert ("overview-1-pareto" in page(made)) == bool(shown)
    if shown:
        assert overview.figure is not None
        assert not any(panel.x.epsilon for panel in overview.figure.panels)
        assert "Left out:" in overview.figure.caption
    else:
        assert overview.figure is None


def test_the_head_says_what_was_run_on_what_and_the_finding_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    rows = [f"{i % 7},{'yes' if i % 7 > 2 else 'no'},{'fm'[i % 3 // 2]}" for i in range(120)]
    file.write_text("\n".join(["x,hired,sex", *rows]) + "\n")
    folder = saved_comparison(tmp_path / "out", ["sgd", "dpsgd"], 2, csv=str(file), label="hired", group="sex",
                              batch_size=16)
    facts = dict(chapter(read([folder])[1][0], "part-1").facts)
    assert list(facts) == ["Finding", "Date", "Data", "Label", "Favourable class", "Records", "Epsilon", "Delta",
                           "Seeds"]
    assert facts["Favourable class"].startswith("'yes' of hired")
    assert facts["Records"] == "85 for training, 25 for testing"
    assert (facts["Delta"], facts["Seeds"]) == ("0.0001", "2")
    assert facts["Epsilon"].endswith("(and without privacy)")
    assert any(letter.isdigit() for letter in facts["Finding"])


def test_methods_have_a_row_for_the_majority_class_and_a_ledger_by_method(comparison_folder: Path) -> None:
    comparison = read([comparison_folder])[1][0]
    tables = {table.name: table for table in chapter(comparison, "part-1").tables()}
    assert [row[0] for row in tables["methods"].rows] == ["sgd", "dpsgd", "dpsgd-f"]
    (majority,) = tables["methods"].foot
    assert majority[0] == "majority class"
    rate = comparison.final["all", "majority_rate"].mean()
    assert majority[1].value == pytest.approx(rate)  # type: ignore[union-attr]
    ledger = tables["ledger-methods"]
    assert [row[0] for row in ledger.rows] == ["sgd", "dpsgd", "dpsgd-f"]
    for row in ledger.rows:
        own = [ledger.epsilon() for (_, name, _), ledger in comparison.ledgers.items() if name == row[0]]
        assert row[4] == max(own)
