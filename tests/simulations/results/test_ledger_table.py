"""The ledger of a finished run, printed from its folder."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner

from fedfair.accounting import Event, Ledger, RenyiFilter
from fedfair.accounting.contents import Part
from fedfair.accounting.figures import up
from fedfair.mechanisms.noise import Trust
from simulations import Experiment, run
from simulations.cli import app
from simulations.results.ledger_table import file_notes, ledger_table
from simulations.results.run_folder import RunFolder


def text(ledger: Ledger, delta: float | None = None) -> str:
    file = io.StringIO()
    Console(file=file, width=100).print(ledger_table(ledger, delta))
    return file.getvalue()


def test_every_figure_of_every_group_and_observer_is_there_with_its_reason() -> None:
    ledger = Ledger(("few", "many"), 1e-5, Trust.DISTRIBUTED, 4, "rdp", public="what all know")
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 2.0), 10.0), 20)
    ledger.expose("metrics on the test part", "without noise")
    shown = text(ledger)
    figures = [*ledger.guaranteed_by_group().values(), *ledger.epsilon_by_group().values(),
               *ledger.odometer_by_group().values(), *ledger.by_observer().values()]
    assert all(up(figure, ".3f") in shown for figure in figures)
    for words in ("epsilon at delta 1e-05, for one record, by rdp", "guarantee: proved, because", "what all know",
                  "an odometer reading", "not protected: metrics on the test part (without noise)", "server", "client"):
        assert words in shown
    assert up(ledger.epsilon(1e-3), ".3f") in text(ledger, 1e-3)


def test_names_of_groups_are_no_markup() -> None:
    names = ("[other]", "[/x]", ":car:")
    ledger = Ledger(names, 1e-5)
    ledger.record(Event((0.1,) * 3, (1.0,) * 3, (2.0,) * 3), 10)
    assert all(text(ledger).count(name) == 2 for name in names)


def test_the_command_prints_the_ledger_of_a_folder(tmp_path: Path) -> None:
    result = run(Experiment(strategy="dpsgd", steps=2, hidden=(8,), delta=1e-4))
    result.save(tmp_path / "run")
    assert RunFolder(tmp_path / "run").ledgers[""].epsilon() == result.ledger.epsilon()
    shown = CliRunner().invoke(app, ["ledger", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert up(result.ledger.epsilon(), ".3f") in shown.stdout
    missing = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert (missing.exit_code, "there is no ledger.json in" in missing.output) == (2, True)


def test_every_figure_is_where_it_belongs_at_the_delta_that_is_asked_for() -> None:
    ledger = Ledger(("few", "many"), 1e-5, Trust.DISTRIBUTED, 4, budget=RenyiFilter(8, 3.0))
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 2.0), 10.0), 20)
    lines = [line.split() for line in text(ledger, 1e-3).splitlines()]
    by_observer = ledger.by_observer_and_group(1e-3)
    for name in ledger.groups:
        figures = (ledger.guaranteed_by_group(1e-3), ledger.guaranteed_by_group(1e-3, "rdp"),
                   ledger.epsilon_by_group(1e-3), ledger.odometer_by_group(1e-3))
        assert [name, *(up(values[name], ".3f") for values in figures)] in lines
        assert ["spent", "by", name, *(up(values[name], ".3f") for values in by_observer.values())] in lines
    assert ["guaranteed", "to", "all", *(up(value, ".3f") for value in ledger.by_observer(1e-3).values())] in lines
    budget = f"at order 8, epsilon {up(RenyiFilter(8, 3.0).epsilon(1e-3), '.4g')} at delta 0.001"
    assert budget in " ".join(text(ledger, 1e-3).split())


def test_files_are_a_line_for_each_kind_and_what_is_not_protected_is_named() -> None:
    ledger = Ledger(("a", "b"), 1e-5).with_files({
        "x.csv": (Part("names of groups", "public"), Part("weights", "releases")), "y.csv": (
            Part("names of groups", "public"),), "z.csv": (Part("losses", "training"),)})
    lines = file_notes(ledger)
    assert lines[:3] == ["in 2 files, public by assumption: names of groups",
                         "in 1 file, post-processing of the releases in the ledger: weights",
                         "in 1 file, not protected: exact, of training records, for simulation alone: z.csv: losses"]
    assert sum("file" in line for line in lines) == len(lines) == 6


def test_the_reason_says_of_the_events_whether_records_were_sampled() -> None:
    for rates, said in (((1.0, 1.0), "a Gaussian of all records, without sampling,"),
                        ((0.1, 0.1), "a Poisson-sampled Gaussian"),
                        ((0.1, 1.0), "a Gaussian, Poisson-sampled or of all records,")):
        ledger = Ledger(("a", "b"), 1e-5)
        ledger.record(Event(rates, (1.0, 1.0), (1.0, 1.0)), 2)
        assert f"every release is {said} with noise" in ledger.reason
