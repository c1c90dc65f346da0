"""Intervals of a fit's scores, and how stable its decisions are: in its folder, on its page, and for new rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.page import rates, scores
from simulations.fitting.save import save
from simulations.results.scorecard import EVERY, RECORDS
from tests.simulations.fitting.tables import file, people

SEEDED = {"randomness": "seeded", "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit."""
    out = tmp_path_factory.mktemp("scores") / "people"
    wanted = Wanted(file(tmp_path_factory.mktemp("table"), 20_000), "hired", "sex", settings=SEEDED,
                    owner="Example & Co", purpose="to try it")
    save(fit(wanted), out)
    return out


def card(folder: Path) -> pd.DataFrame:
    """Return the scorecard of a folder."""
    return pd.read_csv(folder / "scorecard.csv", keep_default_na=False, na_values=[""])


def test_every_score_of_a_bin_with_records_has_an_interval(folder: Path) -> None:
    table = card(folder)
    assert [*table.columns[:4]] == ["run", "column", "value", RECORDS]
    assert [*table.columns[4:8]] == ["low of no", "high of no", "low of yes", "high of yes"]
    assert [*table.columns[8:]] == ["score of no", "score of yes"]  # last, as readers of before expect
    told = (table[RECORDS] > 0) | (table["column"] == EVERY)
    assert table.loc[told, "low of yes"].notna().all()
    assert table.loc[~told, "low of yes"].isna().all()
    for label in ("no", "yes"):
        assert (table["low of " + label] < table["score of " + label])[told].all()
        middle = (table["low of " + label] + table["high of " + label]) / 2
        assert middle[told].to_numpy() == pytest.approx(table["score of " + label][told].to_numpy(), abs=1e-6)


def test_another_point_has_the_intervals_of_its_own(folder: Path, tmp_path: Path) -> None:
    save(fit(Wanted(file(tmp_path, 20_000), "hired", "sex", settings=SEEDED)), tmp_path / "out")
    before, story = card(tmp_path / "out"), Story.read(tmp_path / "out")
    assert CliRunner().invoke(app, ["choose", str(tmp_path / "out"), "--tau", "-0.6"]).exit_code == 0
    after, then = card(tmp_path / "out"), Story.read(tmp_path / "out")
    assert [*after.columns] == [*before.columns]
    wide = [table["high of yes"] - table["low of yes"] for table in (before, after)]
    assert (wide[0] - wide[1]).abs().max() > 1e-3
    assert then.changed != story.changed


def test_the_page_has_pictures_before_tables_and_says_whose_it_is(folder: Path) -> None:
    story, page = Story.read(folder), (folder / "report.html").read_text()
    assert [each.title for each in rates(story)] == ["selection rate", "true positive rate", "false positive rate",
                                                    "accuracy"]
    assert {each.title for each in scores(story)} == {"age", "hours", "school", "postcode"}
    assert scores(story)[-1].title == "postcode"
    assert page.index('id="rates"') < page.index("All figures by group, as a table")
    for said in ("Example &amp; Co", "to try it", "20,000, a number that is public", 'id="stability"', "by fedfair"):
        assert said in page, said
    for said in ("Example & Co", "Rows: 20,000.", "had been drawn anew"):
        assert said in (folder / "card.md").read_text(), said


def test_decisions_on_new_rows_are_as_stable_as_is_said(tmp_path: Path) -> None:
    """With the same bins, which are public here: the noise of the training is what differs."""
    (tmp_path / "public.toml").write_text('source = "a study"\n[ranges]\nage = [18, 80]\nhours = [20, 60]\n'
                                          'postcode = [10000, 99999]\n[categories]\nsex = ["f", "m", "other"]\n'
                                          'school = ["primary", "secondary", "college", "university", "other"]\n')
    rows = people(3000, seed=9).drop(columns="hired")
    rows.to_csv(tmp_path / "new.csv", index=False)
    wanted = Wanted(file(tmp_path, 20_000), "hired", "sex", settings={
        **SEEDED, "schema_file": str(tmp_path / "public.toml")})
    said, other = (_decided(replace(wanted, epsilon=epsilon), tmp_path / name)
                   for name, epsilon in (("said", 1.0), ("again", 1.001)))  # other noise
    alike = said["predicted"] == other["predicted"]
    assert said["stability"].between(0.5, 1).all()
    assert 0.3 * (1 - said["stability"]).sum() < (~alike).sum() < 2.5 * (1 - said["stability"]).sum()
    assert said.loc[~alike, "stability"].mean() < said.loc[alike, "stability"].mean() - 0.1


def _decided(wanted: Wanted, folder: Path) -> pd.DataFrame:
    """Fit, and return decisions on new rows with how stable they are."""
    save(fit(wanted), folder)
    done = CliRunner().invoke(app, ["predict", str(folder), str(folder.parent / "new.csv"), "--stability", "--out",
                                    f"{folder}.csv"])
    assert done.exit_code == 0, done.output
    return pd.read_csv(f"{folder}.csv")


def test_a_model_of_which_nothing_is_known_is_said_to_be_so(folder: Path, tmp_path: Path) -> None:
    rows = people(50).assign(stability=1)
    rows.to_csv(tmp_path / "new.csv", index=False)
    asked = ["predict", str(folder), str(tmp_path / "new.csv"), "--stability"]
    assert "have a column 'stability' already" in " ".join(CliRunner().invoke(app, asked).stderr.split())
