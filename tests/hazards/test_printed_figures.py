"""Hazard 35: no table, page or message prints an epsilon or a delta that is below the figure."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedfair.accounting import Event, Ledger
from fedfair.accounting.ledger_words import delta_warning, held_out_data
from fedfair.fairness.intervals import Estimate
from simulations.cli import app
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawn
from simulations.drawing.table import Epsilon, said
from simulations.report.figures import _epsilon
from simulations.reproductions.markdown import _ours
from simulations.results.ledger_table import ledger_table, notes, promise
from simulations.results.terminal_table import comparison_table
from simulations.statistics.statements import large_deltas, searched


class Claims(Ledger):
    """A ledger with figures that rounding to the nearest would make too small."""

    def guaranteed_by_group(self, delta: float | None = None, accountant: object = None) -> dict[str, float]:
        """Guarantee a little more than 1."""
        return dict.fromkeys(self.groups, 1.00049)

    def held_out_epsilon(self, part: str, delta: float | None = None, accountant: object = None) -> float:
        """Return a little more than 1,000."""
        return 1004.9


def claims(delta: float = 1.0000001e-5) -> Claims:
    ledger = Claims(("a", "b"), delta, size=1000)
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0)), 10)
    ledger.record_held_out("valid", 1.0)
    return ledger


def printed(renderable: object) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(renderable)
    return file.getvalue()


def test_the_table_of_a_comparison_rounds_epsilon_up() -> None:
    row = {"dataset": "d", "strategy": "dpsgd", "seeds": 1, "epsilon": 1.00499, "guarantee": "proved",
           "validation_epsilon": 9.994001, "privacy_cost_gap_mean": math.nan,
           **{f"{name}_mean": 0.5 for name in ("accuracy", "accuracy_a", "accuracy_parity", "demographic_parity")}}
    shown = printed(comparison_table(pd.DataFrame([row, {**row, "strategy": "naive", "epsilon": 0.0049}]), {"a": 10}))
    assert ["epsilon", "1.01", ".01"] in [line.split() for line in shown.splitlines()]
    assert "an epsilon of 10.00 for its records" in searched(pd.DataFrame([row]))[0]


def test_the_ledgers_table_and_words_round_up() -> None:
    shown = printed(ledger_table(claims()))
    assert "1.001" in shown
    assert "1.000 " not in shown
    assert "epsilon at delta 1.00001e-05" in shown
    assert "epsilon 1.01e+03 at delta 1.00001e-05" in held_out_data(claims(), "valid")


def test_the_report_rounds_up() -> None:
    assert (said(Epsilon(2.00049)), said(2.00049), said(Epsilon(math.inf))) == ("2.001", "2.000", "∞")
    words = promise(claims())
    assert "at most 2.72 times" in words
    assert "epsilon 1.01, delta 1.00001e-5" in words
    assert (_epsilon(2.0001), _epsilon(math.inf)) == ("2.01", "∞")
    panel = Panel("p", Scale("done"), Scale("epsilon", epsilon=True),
                  (Series("dpsgd", 0, (Point(Estimate(100.0), Estimate(2.00049)),)),))
    figure = Figure("f", "t", "c", (panel,))
    assert panel.words() == "dpsgd 2.01"
    assert "epsilon 2.001" in drawn(figure, "part")[0]
    assert said(figure.table().rows[0][3]) == "2.001"


def test_a_promise_too_large_for_a_number_is_still_said() -> None:
    ledger = claims()
    ledger.guaranteed_by_group = lambda *_, **__: {"a": 800.01}  # type: ignore[method-assign]
    assert "at most e^801 times as likely" in promise(ledger)


def test_our_epsilons_beside_published_ones_round_up_and_nothing_else_does() -> None:
    row = {"published": "5.90", "ours": 5.9091}
    assert (_ours({**row, "metric": "epsilon"}), _ours({**row, "metric": "accuracy"})) == ("5.910", "5.909")


@pytest.mark.parametrize(("delta", "warned"), [(0.5, True), (0.00101, True), (0.001, False), (1e-5, False)])
def test_a_delta_above_one_over_the_records_is_warned_of_once(delta: float, warned: bool) -> None:
    ledger = claims(delta)
    lines = [line for line in notes(ledger, delta) if "is above 1/1,000" in line]
    assert len(lines) == int(warned)
    assert len(large_deltas([ledger, ledger, Ledger.from_dict(ledger.to_dict())])) == int(warned)
    assert any("is above 1/1,000" in line for line in notes(ledger, 0.5))


def test_without_a_guarantee_or_a_number_of_records_there_is_no_warning() -> None:
    bare = Ledger(("a",), 0.5)
    bare.record(Event((0.1,), (1.0,), (1.0,)), 10)
    none = Ledger(("a",), 0.5, size=10)
    none.record(Event((0.1,), (0.0,), (0.0,)), 10)
    assert delta_warning(bare) == delta_warning(none) == ""


def test_the_terminal_warns_of_a_large_delta(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("age,sex,hired\n" + "".join(f"{20 + i % 40},{'fm'[i % 2]},{i // 3 % 2}\n" for i in range(200)))
    shown = CliRunner().invoke(app, ["run", "--csv", str(table), "--label", "hired", "--group", "sex", "--strategy",
                                     "dpsgd", "--set", "model=logistic", "--set", "epochs=1", "--set", "batch_size=32",
                                     "--set", "delta=0.5", "--out", str(tmp_path / "out")])
    words = " ".join(shown.stdout.split())
    assert shown.exit_code == 0, shown.output
    assert words.count("delta 0.5 is above 1/") == 1
    ledger = CliRunner().invoke(app, ["ledger", str(tmp_path / "out")])
    words = " ".join(ledger.stdout.split())
    for explained in ("warning: delta 0.5 is above 1/", "guaranteed: certain before the run began",
                      "spent: composed from the bounds that were in force", "the sum of both groups' figures"):
        assert words.count(explained) == 1
