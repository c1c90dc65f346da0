"""Fits of the same records that are counted in one file."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sklearn.model_selection import cross_validate
from typer.testing import CliRunner

from simulations.cli import app
from simulations.files.atomic_files import alone_in
from simulations.fitting import fit as fitting
from simulations.fitting.budget import Spending
from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import kept_free
from tests.simulations.fitting.tables import file, people


def test_a_cross_validation_costs_the_sum_of_its_fits(tmp_path: Path) -> None:
    rows, counted = people(1500), Spending(tmp_path / "fits.jsonl")
    classifier = FairPrivateClassifier(epsilon=2.0, delta=1e-6, random_state=0, count_in=counted.path)
    scores = cross_validate(classifier, rows[["age"]], rows["hired"], cv=3)
    assert len(scores["test_score"]) == counted.fits == 3
    assert (counted.epsilon, counted.delta) == (6.0, pytest.approx(3e-6))


def test_a_fit_that_did_not_end_is_counted_and_one_that_was_refused_is_not(tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Its releases may have been seen."""
    counted = Spending(tmp_path / "fits.jsonl")
    wanted = Wanted(file(tmp_path, 1500), "hired", "sex", count_in=counted.path)
    with pytest.raises(ValueError, match="nobody"):
        fit(Wanted(**{**vars(wanted), "label": "nobody"}))
    assert counted.fits == 0

    def stopped(*_: Any) -> None:
        """End as a kill would, where the first release is made."""
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "kinds", stopped)
    with pytest.raises(KeyboardInterrupt):
        fit(wanted)
    assert counted.fits == 1


@pytest.mark.parametrize("named", ["Yes", 2])
def test_a_favourable_class_that_is_none_is_refused_before_anything_is_charged(tmp_path: Path, named: Any) -> None:
    counted = Spending(tmp_path / "fits.jsonl")
    wanted = Wanted(file(tmp_path, 400), "hired", "sex", settings={"favourable": named}, count_in=counted.path)
    with pytest.raises(ValueError, match=r"unknown favourable class 'Yes'|favourable is 2, but there are 2 classes"):
        fit(wanted)
    assert counted.fits == 0


@pytest.mark.parametrize(("change", "more", "said"), [
    ({"sex": "f"}, {}, "the single value"), ({"sex": [*range(400)]}, {}, "too many for a group"),
    ({"hired": [*range(150), *range(150), *range(100)]}, {}, "too many for a label"),
    ({"sex": ["all", "m"] * 200}, {}, "is called 'all'"),
    ({}, {"settings": {"without": ["age", "hours", "school", "postcode"]}}, "no column is left to learn from"),
    ({}, {"settings": {"ranges": {"age": [30, 0]}}}, "the smaller first"),
    ({}, {"settings": {"edges": {"age": [5, 4]}}}, "finite numbers that rise"),
    ({}, {"settings": {"dtype": "float32"}}, "only exact enough"), ({}, {"delta": 0.5}, "figures_epsilon is 0"),
    ({"hired": ["a", "b", "c", "d"] * 100}, {"gap": 0.1}, "none of the 4 classes"),
    ({"hired": ["a", "b", "c", "d"] * 100}, {"monotone": ("age=up",)}, "there are 4 classes"),
    ({}, {"site": "postcode"}, "too many for a group"), ({"predicted": 1}, {}, "is called as what a model adds"),
    ({"P(yes)": 1}, {}, "is called as what a model adds")])
def test_what_is_public_is_refused_before_anything_is_charged(change: dict[str, Any], more: dict[str, Any], said: str,
                                                              tmp_path: Path) -> None:
    """Groups, classes, sites and settings were looked at when the kinds of columns had been released already."""
    counted = Spending(tmp_path / "fits.jsonl")
    with pytest.raises(ValueError, match=said):
        fit(Wanted(people(400).assign(**change), "hired", "sex", count_in=counted.path, **more))
    assert counted.fits == 0


def test_settings_of_a_file_and_of_what_no_row_tells_beforehand_are_no_reason_to_refuse(tmp_path: Path) -> None:
    people(400).to_excel(tmp_path / "people.xlsx", index=False, startrow=2)
    counted = Spending(tmp_path / "fits.jsonl")
    for settings in ({}, {"bands": {"age": [30, 60]}}, {"participant": "postcode"}):
        fit(Wanted(tmp_path / "people.xlsx", "hired", "sex", count_in=counted.path,
                   settings={"header_row": 3, "sheet": "Sheet1", **settings}))
    assert counted.fits == 3


def test_the_check_names_the_favourable_class_as_a_fit_takes_it(tmp_path: Path) -> None:
    """Where capitals do not matter, a fit has small letters, since no record may decide it for others."""
    frame = people(400).assign(hired=lambda rows: rows["hired"].str.upper())
    frame.to_csv(tmp_path / "own.csv", index=False)
    words = [str(tmp_path / "own.csv"), "--label", "hired", "--group", "sex", "--without", "postcode",
             "--set", "capitals=same"]
    said = CliRunner().invoke(app, ["data", "check", *words], env={"COLUMNS": "300"}).output
    assert "Favourable class of a fit: 'yes' of hired" in said
    assert "add --favourable no." in said
    done = CliRunner().invoke(app, ["fit", *words, "--favourable", "no", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output


def test_fits_in_parallel_are_all_counted(tmp_path: Path) -> None:
    counted = Spending(tmp_path / "fits.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counted.charge(0.1, 1e-7), range(100)))
    assert counted.fits == 100
    assert counted.epsilon == pytest.approx(10)


def test_a_last_line_that_an_editor_left_open_takes_no_other_in(tmp_path: Path) -> None:
    counted = Spending(tmp_path / "fits.jsonl")
    counted.path.write_text('{"epsilon": 1.0, "delta": 1e-06}')
    counted.charge(2.0, 1e-6)
    counted.charge(3.0, 1e-6)
    assert (counted.fits, counted.epsilon) == (3, 6.0)


def test_what_is_said_twice_or_counted_where_a_fit_writes_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    own, counted = file(tmp_path, 400), Spending(tmp_path / "fits.jsonl")
    words = ["fit", str(own), "--label", "hired", "--group", "sex"]
    for more, said in ((["--set", "label=town"], "label is among the settings"),
                       (["--set", "csv=other.csv"], "csv is among the settings"),
                       (["--favourable", "yes", "--set", "favourable=no"], "is 'yes' by its option and 'no'")):
        done = CliRunner().invoke(app, [*words, "--count-in", str(counted.path), *more])
        assert (done.exit_code, said in " ".join(done.stderr.split())) == (2, True), done.output
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--count-in", str(out / "more" / "fits.jsonl")])
    assert (done.exit_code, "count in a file beside it" in " ".join(done.stderr.split())) == (2, True)
    assert not out.exists()
    assert counted.fits == 0


@pytest.mark.parametrize("text", ["years,sex\n1,f\n", "{}\n", '{"epsilon": "much", "delta": 0}\n',
                                  '{"epsilon": NaN, "delta": 0}\n', '{"epsilon": -1.0, "delta": 0}\n'])
def test_a_file_that_counts_no_fits_is_refused_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "own").write_text(text)
    with pytest.raises(ValueError, match="is no count of fits"):
        Spending(tmp_path / "own").charge(1.0, 1e-6)
    assert (tmp_path / "own").read_text() == text


def test_what_keeps_no_line_is_no_count_of_fits(tmp_path: Path) -> None:
    """As /dev/null: all fits would cost epsilon 0 together."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is no count of fits"):
        Spending(tmp_path / "pipe").charge(1.0, 1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_the_command_says_what_fits_cost_together(tmp_path: Path) -> None:
    command = ["fit", str(file(tmp_path, 1500)), "--label", "hired", "--group", "sex", "--delta", "1e-6", "--count-in",
               str(tmp_path / "fits.jsonl"), "--out"]
    for number in range(2):
        done = CliRunner().invoke(app, [*command, str(tmp_path / f"out{number}")], catch_exceptions=False)
    assert "2 fits that are counted in fits.jsonl cost every row epsilon 2 at delta 2e-06 together" in done.stderr
    written = json.dumps([path.read_text() for path in (tmp_path / "out1").glob("*.toml")])
    assert "fits.jsonl" not in written


def test_a_fit_into_a_folder_that_another_one_fills_is_refused_before_it_is_counted(tmp_path: Path) -> None:
    """Both were charged, and one removed what the other had written so far."""
    counted, out = Spending(tmp_path / "fits.jsonl"), tmp_path / "out"
    words = ["fit", str(file(tmp_path, 400)), "--label", "hired", "--group", "sex", "--count-in", str(counted.path),
             "--out", str(out)]
    with alone_in(out):
        second = CliRunner().invoke(app, words)
    assert second.exit_code == 2
    assert "out is in use by another run" in " ".join(second.output.split())
    assert counted.fits == 0
    out.mkdir()
    (out / "fit.toml").touch()  # which the first one has written meanwhile
    with pytest.raises(FileExistsError, match="holds a fit already"), kept_free(out):
        pass


def test_a_count_is_one_whatever_link_names_it(tmp_path: Path) -> None:
    """Two locks would let two fits write at once."""
    (tmp_path / "fits.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("fits.jsonl")
    Spending(tmp_path / "link.jsonl").charge(1.0, 1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"fits.jsonl", "link.jsonl", "fits.jsonl.lock"}
