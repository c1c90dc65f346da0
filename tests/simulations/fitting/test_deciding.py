"""What decides: weights of columns and how they tell groups apart; the band of the front."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedfair.fairness.intervals import Estimate
from simulations.cli import app
from simulations.fitting import page as of_page
from simulations.fitting.deciding import Deciding, deciding, in_words, proxies
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.page import _coded, best_within, weights
from simulations.fitting.save import chosen_again, save
from simulations.results.choice import Wish, choose
from simulations.results.classifier import TrainedClassifier

ROWS = 6000


def people(seed: int = 0) -> pd.DataFrame:
    """Return a table in which a town stands in for the group, and ages decide without telling groups apart."""
    draws = np.random.default_rng(seed)
    sex, age = draws.choice(["f", "m"], ROWS), draws.integers(18, 60, ROWS)
    town = np.where(draws.random(ROWS) < .7, np.where(sex == "m", "Bonn", "Kiel"), "Ulm")
    score = (age - 39) / 8 + 1.2 * (town == "Bonn") - .4 + draws.logistic(size=ROWS)
    return pd.DataFrame({"age": age, "town": town, "luck": draws.choice(["x", "y"], ROWS), "sex": sex,
                         "hired": np.where(score > 0, "yes", "no")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit with little noise."""
    out = tmp_path_factory.mktemp("fits") / "people"
    save(fit(Wanted(people(), "hired", "sex", 50.0, settings={"randomness": "seeded"})), out)
    return out


def contributions(folder: Path) -> pd.DataFrame:
    """Return what each column adds to the log-odds of each row of the table, `[n, columns]`: the slow way."""
    model, table = TrainedClassifier.load(folder), people()

    def log_odds(frame: pd.DataFrame) -> np.ndarray:
        probability = model.predict_proba(frame)[:, 1]
        return np.log(probability / (1 - probability))

    first = table.iloc[[0] * ROWS].reset_index(drop=True)
    base = log_odds(first)
    return pd.DataFrame({name: log_odds(first.assign(**{name: table[name]})) - base
                         for name in ("age", "town", "luck")})


def test_weights_and_differences_are_those_of_the_rows(folder: Path) -> None:
    exact, sex = contributions(folder), people()["sex"]
    found = {each.column: each for each in deciding(Story.read(folder))}
    for name, each in found.items():
        assert each.share == pytest.approx(exact[name].std() / exact.std().sum(), abs=.02), name
        apart = exact[name][sex == each.first].mean() - exact[name][sex == each.second].mean()
        assert each.difference.value == pytest.approx(apart, abs=.02), name
        assert each.difference.low - .01 <= apart <= each.difference.high + .01, name
    assert next(iter(found)) == "age"
    assert sum(each.share for each in found.values()) == pytest.approx(1)


def test_the_town_stands_in_for_the_group(folder: Path) -> None:
    story = Story.read(folder)
    found = deciding(story)
    assert [each.column for each in proxies(found, story)] == ["town"]
    said = in_words(found, story)
    assert said.startswith("Of the weight in decisions, age (")
    assert "sex is no feature; these columns give one group a higher mean score than another: town (m above" in said
    page = (folder / "report.html").read_text()
    assert said in page
    assert page.index('id="decides"') < page.index('id="groups"')
    assert said in (folder / "card.md").read_text()
    assert [each.title for each in weights(found)] == ["weight in decisions", "mean score of m less that of f"]


def test_pictures_that_are_folded_are_counted_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for drawn, words in ((2, "The other column, which moves the"), (1, "The other 2 columns, which move the")):
        monkeypatch.setattr(of_page, "_MOST", drawn)
        assert words in of_page.page(Story.read(folder))


def test_groups_furthest_apart_are_named_in_full_and_words_of_the_page_are_explained(folder: Path) -> None:
    long = Deciding("days in custody", .6, "Black or African American", "Hispanic or Latino", Estimate(.1, .0, .2))
    _, apart = weights([long, Deciding("priors", .4, "White", "Asian", Estimate(.2, .1, .3))])
    assert "days in custody" in apart.svg
    assert "\u2026" not in apart.svg
    page = (folder / "report.html").read_text()
    assert "<td>m above f</td>" in page
    for words in ("The selection rate is the share of records that are decided for", "AUC is how often, of two records",
                  "accuracy parity: largest difference of accuracies", "below 0 they are turned round"):
        assert words in page
    assert _coded("<Salary> `fedfair data check`") == "&lt;Salary&gt; <code>fedfair data check</code>"


def test_a_report_does_not_replace_the_page_of_a_fit(folder: Path) -> None:
    before, page = {path.name: path.read_bytes() for path in folder.iterdir()}, folder / "report.html"
    written = CliRunner().invoke(app, ["report", str(folder)])
    assert written.exit_code == 0, written.output
    assert "<html" in folder.with_name(f"{folder.name}-report.html").read_text()
    refused = CliRunner().invoke(app, ["report", str(folder), "--out", str(page)])
    assert refused.exit_code == 2
    assert "is the page of a fit, which a report would replace" in " ".join(refused.stderr.split())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_of_many_columns_that_no_group_has_more_of_hardly_any_is_named(tmp_path: Path) -> None:
    """Each with an interval of 95 % by itself, seven of these sixteen pages would name one."""
    named = 0
    for seed in range(16):
        draws = np.random.default_rng(seed)
        columns = pd.DataFrame({f"c{place}": draws.choice(["x", "y"], 1500) for place in range(12)})
        score = (columns == "x").to_numpy().sum(1) - 6 + draws.logistic(size=1500)
        table = columns.assign(sex=draws.choice(["f", "m"], 1500), hired=np.where(score > 0, "yes", "no"))
        folder = tmp_path / str(seed)
        save(fit(Wanted(table, "hired", "sex", 20.0, settings={"randomness": "seeded", "noise": "gaussian"})), folder)
        story = Story.read(folder)
        named += bool(proxies(deciding(story), story))
    assert named <= 3


def test_another_point_of_the_front_has_weights_of_its_own(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    save(fit(Wanted(people(), "hired", "sex", 50.0, settings={"randomness": "seeded"})), again)
    before = {each.column: each.difference.value for each in deciding(Story.read(again))}
    choose(again, Wish({}, tau=0.0), complete=lambda new, chosen: chosen_again(new, again.name, chosen.number))
    story = Story.read(again)
    after = {each.column: (1 if each.first == "m" else -1) * each.difference.value for each in deciding(story)}
    assert abs(sum(after.values())) < .15 < before["town"]


def test_a_choice_that_is_broken_off_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model and a page are never of two classifiers."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def stopped(*_: object) -> str:
        raise OSError("stopped")

    monkeypatch.setattr("simulations.fitting.save.page", stopped)
    assert CliRunner().invoke(app, ["choose", str(folder), "--tau", "0"]).exit_code == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_of_before_has_weights_alone(folder: Path, tmp_path: Path) -> None:
    story = Story.read(folder)
    assert story.refits is not None
    older = replace(story, refits=story.refits._replace(means=None, off=None))
    assert [each.column for each in deciding(older)] == [each.column for each in deciding(story)]
    assert "feature" not in in_words(deciding(older), older)
    assert len(weights(deciding(older))) == 1


RATE = st.tuples(st.floats(0, 1), st.floats(0, .1), st.floats(0, .1)).map(
    lambda each: Estimate(each[0], max(each[0] - each[1], 0.0), each[0] + each[2]))


@given(st.lists(st.tuples(RATE, RATE), min_size=1, max_size=6))
def test_the_front_never_falls_and_its_band_is_that_of_the_intervals(points: list[tuple[Estimate, Estimate]]) -> None:
    corners = best_within(points)
    for one, other in pairwise(corners):
        assert one.x.value <= other.x.value
        assert one.y.value <= other.y.value
        assert one.y.high <= other.y.high
        assert not one.y.low > other.y.low
    for corner in corners:
        within = [right.value for gap, right in points if gap.value <= corner.x.value]
        assert corner.y.value <= max(within)
        assert corner.y.value <= corner.y.high
        assert math.isnan(corner.y.low) or corner.y.low <= corner.y.value
    assert corners[-1].y.value == max(right.value for _, right in points)


def test_what_cannot_be_told_is_in_no_band() -> None:
    assert best_within([(Estimate(math.nan), Estimate(.5, .4, .6))]) == []


def test_figures_that_stand_twice_are_explained(folder: Path) -> None:
    """The recommended model is counted among those of the front, and once more by itself."""
    story = Story.read(folder)
    assert story.at(story.chosen, "accuracy") != story.figure("accuracy")
    assert story.twice_counted
    assert "other figures here than in the tables above" in (folder / "report.html").read_text()
