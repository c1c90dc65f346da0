"""Figures show what the metrics say."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.accounting import Ledger
from simulations.drawing.svg import drawn
from simulations.report.figures import accuracy_figure, bounds_figure, constants, ledger_figure, training_figure
from simulations.results.comparison import Comparison
from simulations.results.ledger_table import promise
from simulations.results.run_folder import read


@pytest.fixture(scope="module")
def comparison(comparison_folder: Path) -> Comparison:
    return read([comparison_folder])[1][0]


def test_each_group_has_a_panel_and_each_method_its_mean(comparison: Comparison) -> None:
    figure = accuracy_figure(comparison)
    assert [panel.title for panel in figure.panels][:2] == ["all groups", "8 (40 records)"]
    rows = comparison.metrics.query("split == 'test' and metric == 'accuracy' and group == '8' and strategy == 'dpsgd'")
    last = rows[rows["round"] == rows.groupby("seed")["round"].transform("max")]
    series = next(series for series in figure.panels[1].series if series.name == "dpsgd")
    assert series.points[0].x.value == pytest.approx(last["value"].mean())


def test_training_curves_go_over_all_seeds_although_they_are_evaluated_at_different_rounds(comparison: Comparison
                                                                                           ) -> None:
    for series in training_figure(comparison).panels[0].series:
        assert len(series.points) == 2
        rows = comparison.metrics.query("split == 'test' and metric == 'accuracy' and group == 'all'")
        firsts = rows[rows["strategy"] == series.name].groupby("seed").first()
        assert series.points[0].y.value == pytest.approx(firsts["value"].mean())


def test_what_moved_is_drawn_and_what_stood_still_is_told(comparison: Comparison) -> None:
    figure = bounds_figure(comparison)
    assert figure is not None
    assert {series.name for panel in figure.panels for series in panel.series} == {"dpsgd-f"}
    assert len(figure.panels) == 10
    assert constants(comparison) == ["dpsgd: clip norm 1"]


def test_the_ledger_ends_where_the_ledger_says_and_never_falls(comparison: Comparison) -> None:
    figure = ledger_figure(comparison)
    assert figure is not None
    first = figure.panels[0]
    assert {series.name for series in first.series} == {"dpsgd", "dpsgd-f"}
    for series in first.series:
        values = [point.y.value for point in series.points]
        assert values == sorted(values)
        assert values[0] == 0
        assert values[-1] == pytest.approx(comparison.first_ledgers[series.name].epsilon())
    assert "guaranteed against the server" not in [panel.title for panel in figure.panels]  # central trust


def test_a_promise_is_in_words_and_claims_no_more_than_the_ledger(comparison: Comparison) -> None:
    ledgers = comparison.first_ledgers
    assert promise(ledgers["sgd"]).startswith("No guarantee")
    assert f"epsilon {ledgers['dpsgd'].epsilon():.3g}" in promise(ledgers["dpsgd"])
    nominal = Ledger.from_dict({**ledgers["dpsgd"].to_dict(), "nominal_because": "because"})
    assert promise(nominal).startswith("Not proved, only nominal: because.")


def test_a_panel_says_in_words_what_it_shows(comparison: Comparison) -> None:
    picture = drawn(accuracy_figure(comparison), "part-1")[0]
    assert "<title" in picture
    assert "dpsgd-f 0." in picture.split("<desc")[1].split("</desc>")[0]
