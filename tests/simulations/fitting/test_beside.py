"""Figures of another model beside those of a fit: shown as given, refused before the fit if they are none."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.fitting.beside import beside, read_beside
from simulations.fitting.fit_folder import Story
from tests.for_each import for_each
from tests.simulations.fitting.test_deciding import people

PLAIN = pd.DataFrame([("all", "accuracy", .81), ("f", "positive_rate", .4), ("m", "positive_rate", .6),
                      ("all", "demographic_parity", .2)], columns=["group", "metric", "value"])


def test_a_model_without_privacy_is_shown_beside_and_said_to_be_uncovered(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    pd.concat([PLAIN, PLAIN.tail(1).assign(group="x")]).to_csv(tmp_path / "no privacy.csv", index=False)
    asked = ["fit", str(tmp_path / "people.csv"), "--label", "hired", "--group", "sex", "--epsilon", "8"]
    run = CliRunner().invoke(app, [*asked, "--beside", str(tmp_path / "no privacy.csv"), "--out",
                                   str(tmp_path / "out")])
    assert run.exit_code == 0, run.output
    assert "but for the figures of no privacy, which no epsilon covers" in " ".join(run.output.split())
    rows = beside(Story.read(tmp_path / "out"))
    assert [(row.words, row.group, row.other.value) for row in rows] == [
        ("accuracy", "all", .81), ("selection rate", "f", .4), ("selection rate", "m", .6),
        ("demographic parity: largest difference of selection rates", "all", .2)]
    assert all(row.own.value == row.own.value for row in rows)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Beside no privacy" in page
    for given in ("<span>0.810</span>", "<span>0.400</span>", "<span>0.600</span>"):  # which have no intervals
        assert given in page
    assert "Figures of x are left out: this table has the groups f, m." in page
    assert "but for the figures of no privacy, which were given" in page
    earlier = read_beside(tmp_path / "out")
    assert earlier["name"] == "out"
    assert {"accuracy", "positive_rate", "demographic_parity"} <= {row["metric"] for row in earlier["rows"]}
    assert all(row["low"] <= row["value"] <= row["high"] for row in earlier["rows"] if "low" in row)


@for_each(("text", "said"), [
    ("group,value\nall,1\n", "metric"), ("group,metric,value\nall,acuracy,1\n", "accuracy"),
    ("group,metric,value\nall,accuracy,good\n", "the value 'good'"), ("group,metric,value\n", "none of the figures"),
    ("group,metric,value,low\nall,accuracy,.8,about .7\n", "the low 'about .7'"),
    ("group,metric,value\nall,accuracy,83\n", "accuracy of all outside 0 to 1: give shares"),
    ("group,metric,value,low,high\nall,accuracy,.8,.9,1\n", "accuracy of all outside its own interval"),
    ("group,metric,value\nall,accuracy,.8\nall,accuracy,.7\n", "accuracy of all twice")])
def test_what_is_no_figure_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_beside(tmp_path / "other.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_beside(tmp_path / "nothing.csv")


def test_ends_of_intervals_are_whole_numbers_unknown_or_absent(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("group,metric,value,low,high\nf,accuracy,.5,0,1\nm,accuracy,.5,,inf\n")
    assert read_beside(tmp_path / "other.csv")["rows"] == [
        {"group": "f", "metric": "accuracy", "value": 0.5, "low": 0.0, "high": 1.0},
        {"group": "m", "metric": "accuracy", "value": 0.5}]
