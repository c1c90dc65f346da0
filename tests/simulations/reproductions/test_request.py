"""Requests for parts of a reproduction: which runs are made, and what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.commands.words import reproductions
from simulations.reproductions.published import load, plan
from simulations.reproductions.request import Request
from simulations.reproductions.tuning import load as load_tuning
from tests.for_each import for_each


def test_the_data_sets_asked_for_are_run_and_no_others(data_dir: Path) -> None:
    table, _ = load("xu2021-table1")
    for request in (Request(2, datasets=("Dutch", "Adult")), Request(2, quick=True, datasets=("Dutch", "Adult"))):
        some = plan(table, request)
        assert some == [run for run in plan(table, Request(2)) if run.dataset in ("Adult", "Dutch")]
        assert {run.experiment.seed for run in some} == {0, 1}
    assert plan(table, Request(1, quick=True, datasets=("Dutch",))) == [
        run for run in plan(table, Request(1, quick=True)) if run.dataset == "Dutch"]
    tuning = load_tuning(Request(datasets=("law", "compas")))
    assert tuning.datasets == ("compas", "law")
    assert tuning.model_copy(update={"datasets": ()}) == load_tuning().model_copy(update={"datasets": ()})


def test_the_page_has_the_command_and_what_is_left_out() -> None:
    assert Request(datasets=("law", "compas")).command("fair-fight", 5) == (
        "fedfair reproduce fair-fight --seeds 5 --datasets law,compas --device cpu --out DIR")
    assert Request(7, quick=True, device="cuda").command("x", 3) == (
        "fedfair reproduce x --seeds 3 --quick --device cuda --out DIR")
    assert "--datasets 'Adult balanced,Dutch' " in Request(datasets=("Adult balanced", "Dutch")).command("x", 1)
    assert Request().left_out("Smaller.") == []
    assert Request(quick=True, datasets=("law",)).left_out("Smaller.") == [
        "This is the quick version. Smaller.", "", "Of the data sets only law.", ""]


@pytest.mark.parametrize(("request_", "title"), [
    (Request(), "Nobody 2026, Table 1: accuracy: by group"),
    (Request(datasets=("Law", "Adult")), "Nobody 2026, Table 1, Law, Adult: accuracy: by group"),
    (Request(quick=True), "Nobody 2026, Table 1 (quick version): accuracy: by group"),
    (Request(epsilons=(0.1,)), "Nobody 2026, Table 1, epsilon 0.1: accuracy: by group"),
    (Request(quick=True, datasets=("Law",)), "Nobody 2026, Table 1, Law (quick version): accuracy: by group")])
def test_the_title_has_what_a_page_is_limited_to(request_: Request, title: str) -> None:
    assert request_.title("Nobody 2026, Table 1: accuracy: by group") == title


@for_each(("arguments", "why"), [
    (["fair-fight", "--datasets", ","], "datasets is ',', which names none: name some, or leave --datasets out for "
                         "all"),
    (["nope"], f"unknown reproduction 'nope': known are {', '.join(sorted(reproductions()))}"),
    (["xu2021-table1", "--datasets", "Dutsch"], "unknown data set 'Dutsch': did you mean 'Dutch'? known are Adult, "
                                 "Dutch, MNIST"),
    (["xu2021-table1", "--datasets", "MNIST", "--quick"], "unknown data set of the quick version 'MNIST': known are "
                                           "Adult, Dutch"),
    (["fair-fight", "--datasets", "Law"], "unknown data set 'Law': did you mean 'law'? known are adult, bank, compas, "
                           "credit, dutch, law"),
    (["frontier", "--epsilons", "2,.1"], "unknown epsilon '2': known are 0.1, 0.3, 1, 3, inf"),
    (["frontier", "--epsilons", "much"], "epsilons is 'much': give numbers, separated by commas, or leave --epsilons "
                                         "out for all"),
    (["frontier", "--epsilons", ","], "epsilons is ',': give numbers, separated by commas, or leave --epsilons out for "
                                      "all"),
    (["surface", "--epsilons", "1"], "epsilons is '1', but surface has its own: leave --epsilons out, or take "
                                     "frontier"),
    (["yang2024-figures2-3", "--datasets", "law", "--quick"], "unknown data set of the quick version 'law': known "
                                                 "are adult")])
def test_another_name_is_refused_before_work_starts(arguments: list[str], why: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == f"Error: {why}"
    assert not (tmp_path / "out").exists()
