"""A fit: one budget, a model within reach of an exact one, a folder that tells it all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from fedfair.accounting import LEFT_OUT
from fedfair.accounting.ledger_words import objections
from simulations.cli import app
from simulations.fitting.budget import default_delta, divided
from simulations.fitting.caveats import caveats
from simulations.fitting.fit import Fitted, Wanted, fit, fit_with_records
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import save
from simulations.results.classifier import TrainedClassifier
from simulations.results.run_folder import RunFolder
from tests.for_each import for_each
from tests.simulations.fitting.tables import file, people

FIT: dict[str, Any] = {"label": "hired", "group": "sex"}
SEEDED = {"randomness": "seeded"}
"""For what is so of nearly every fit: one in a thousand would fail."""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Return a fit of a made-up table with a gap."""
    return fit(Wanted(file(tmp_path_factory.mktemp("fit"), 20_000), gap=0.05, **FIT))


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Return the same with noise that a seed draws."""
    return fit(Wanted(file(tmp_path_factory.mktemp("seeded"), 20_000), gap=0.05, settings=SEEDED, **FIT))


@pytest.fixture(scope="module")
def folder(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return its folder."""
    path = tmp_path_factory.mktemp("out") / "people"
    save(fitted, path)
    return path


def with_records(folder: Path, **asked: Any) -> Fitted:
    """Return a seeded fit that still has its records, which no fit keeps, and has held some out."""
    settings = {**SEEDED, "split": (0.7, 0.1, 0.2)}
    return fit_with_records(Wanted(file(folder, 20_000), settings=settings, **asked, **FIT))


def accuracy(fitted: Fitted) -> float:
    """Return the exact accuracy on test records."""
    test = fitted.result.data.test
    with torch.no_grad():
        return float((fitted.result.model(test.x).argmax(1) == test.y).double().mean())


def exact_accuracy(fitted: Fitted) -> float:
    """Return the accuracy of logistic regression without privacy, on the fit's features."""
    train, test = fitted.result.data.train, fitted.result.data.test
    made = LogisticRegression(max_iter=1000).fit(train.x.numpy(), train.y.numpy())
    return float(made.score(test.x.numpy(), test.y.numpy()))


def test_it_is_nearly_as_right_as_logistic_regression_without_privacy(tmp_path: Path) -> None:
    free = with_records(tmp_path)
    assert accuracy(free) > exact_accuracy(free) - 0.015
    assert free.kinds == ("age", "hours", "postcode")
    assert free.needed is None


def test_everything_stays_within_the_epsilon(fitted: Fitted) -> None:
    ledger = fitted.result.ledger
    assert ledger.guarantee == "proved"
    assert 0.99 < ledger.epsilon() <= 1.0
    assert 0 < ledger.held_out_epsilon(LEFT_OUT) < ledger.epsilon()


def test_held_out_parts_have_an_epsilon_each(tmp_path: Path) -> None:
    ledger = with_records(tmp_path).result.ledger
    for spent in (ledger.epsilon(), ledger.held_out_epsilon("valid"), ledger.held_out_epsilon("test")):
        assert 0.99 < spent <= 1.0


def test_many_rows_hold_some_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.fitting.fit.MOST_LEFT_OUT", 1999)
    made = fit(Wanted(file(tmp_path, 2000), settings=SEEDED, **FIT))
    assert made.result.experiment.split == (0.7, 0.1, 0.2)


@pytest.mark.parametrize("settings", [{"duplicates": "together"}, {"participant": "postcode"}])
def test_records_that_tell_of_others_are_held_out(settings: dict[str, Any], tmp_path: Path) -> None:
    made = fit(Wanted(file(tmp_path), settings={**SEEDED, **settings}, **FIT))
    assert made.result.experiment.split == (0.7, 0.1, 0.2)


def test_a_gap_is_kept_to(tmp_path: Path) -> None:
    seeded = with_records(tmp_path, gap=0.05)
    assert seeded.result.figures is not None
    gap = next(figure for split, figure in seeded.result.figures.rows
               if split == "test" and figure.metric == "demographic_parity")
    assert gap.low < 0.05
    labels = seeded.result.data.test.y
    assert accuracy(seeded) > float(torch.bincount(labels).max() / len(labels)) + 0.05


def test_the_budget_adds_up() -> None:
    assert default_delta(100) == 1e-6
    assert default_delta(1_000_000) == 1e-7
    budget = divided(1.0, 1e-6, "pld", has_unknown=True)
    assert budget.kinds is not None
    assert 0.9 < budget.target_epsilon < 1.0
    assert divided(1.0, 1e-6, "pld", has_unknown=False) == (None, 1.0, 1.0)
    one = divided(1.0, 1e-6, "pld", has_unknown=False, holds_out=False)
    assert 0.9 < one.target_epsilon < 0.96
    assert 0.2 < one.figures_epsilon < 0.4


def test_a_schema_takes_the_place_of_what_would_be_learned(tmp_path: Path) -> None:
    schema = tmp_path / "study.toml"
    schema.write_text('source = "our handbook"\n[ranges]\nage = [18, 80]\nhours = [0, 80]\npostcode = [10000, 99999]\n'
                      '[categories]\nschool = ["primary", "secondary", "college", "university", "missing", "other"]\n')
    known = fit(Wanted(file(tmp_path), settings={"schema_file": str(schema)}, **FIT))
    assert known.kinds == ()
    assert known.result.ledger.preprocessing is None
    assert 0.999 < known.result.ledger.epsilon() <= 1.0


def test_a_small_table_says_what_would_be_enough(tmp_path: Path) -> None:
    small = fit(Wanted(file(tmp_path, 200), epsilon=0.3, settings={"numbers": ["age", "hours", "postcode"]}, **FIT))
    assert small.needed is not None
    assert small.needed.records > 140  # in the training part
    story = save(small, tmp_path / "out")
    assert any("would be enough" in line for line in caveats(story))


def test_the_folder_says_that_it_can_be_published(folder: Path) -> None:
    ledger = RunFolder(folder).ledgers[""]
    assert objections(ledger) == {"training records": [], "held-out records": []}
    assert {path.name for path in folder.iterdir()} <= ledger.files.keys()


def test_page_and_card_tell_the_figures(folder: Path) -> None:
    story = Story.read(folder)
    page, card = (folder / "report.html").read_text(), (folder / "card.md").read_text()
    for group in ("f", "m"):
        assert story.figure("accuracy", group).text in page
        assert story.figure("accuracy", group).text in card
    values = json.loads((folder / "card.json").read_text())
    assert values["deployment"]["epsilon"] == pytest.approx(story.epsilon)
    assert "<script" not in story.finding


def test_a_gap_that_no_model_keeps_is_told(tmp_path: Path) -> None:
    story = save(fit(Wanted(file(tmp_path, 3000), gap=0.0, **FIT)), tmp_path / "out")
    assert any("model of the front was within the gap of 0 on" in line for line in caveats(story))


def test_without_a_favourable_class_no_rates_are_told_nor_a_gap_of_them_taken(tmp_path: Path) -> None:
    """The page of three classes called the second one favourable, whose rates it then said to be unknown."""
    rows = people(1500)
    rows["hired"] = np.where(rows["age"] < 35, "no", np.where(rows["age"] < 60, "perhaps", "yes"))
    rows.to_csv(tmp_path / "three.csv", index=False)
    command = ["fit", str(tmp_path / "three.csv"), "--label", "hired", "--group", "sex", "--epsilon", "20"]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*command, "--out", str(out)], env={"COLUMNS": "300"})
    assert (done.exit_code, "no class is named as the favourable one" in done.output) == (0, True), done.output
    assert "perhaps predicted" not in done.output
    for face in ("report.html", "card.md"):
        text = (out / face).read_text()
        assert "none is the favourable class, so that there are no rates of decisions" in text
        assert "perhaps is the favourable" not in text
        assert "the favourable class is perhaps" not in text
    assert json.loads((out / "card.json").read_text())["task"]["favourable"] is None
    refused = CliRunner().invoke(app, ["choose", str(out), "--demographic-parity", "0.1"])
    assert (refused.exit_code, "none of three classes or more is favourable" in " ".join(refused.stderr.split())) == (
        2, True), refused.output
    named = CliRunner().invoke(app, [*command, "--favourable", "yes", "--gap", "0.5", "--out", str(tmp_path / "named")])
    assert named.exit_code == 0, named.output
    assert "the favourable class is yes" in (tmp_path / "named" / "report.html").read_text()


def test_groups_and_classes_may_have_the_same_names(tmp_path: Path) -> None:
    """As of columns of 0 and 1, which are as different as columns of f and m, yes and no."""
    table = people(2000).drop(columns="postcode")
    coded = table.assign(sex=(table["sex"] == "m").astype(int), hired=(table["hired"] == "yes").astype(int))
    taus = []
    for frame in (table, coded):
        fitted = fit(Wanted(frame, "hired", "sex", epsilon=8.0, gap=0.05))
        assert save(fitted, tmp_path / f"{len(taus)}").figure("demographic_parity").told
        front = fitted.result.front
        assert front is not None
        taus.append({point.tau for point in front.front.points})
    assert taus[0] == taus[1] > {1.0}


def test_scores_go_one_way_where_that_is_asked(tmp_path: Path) -> None:
    """With what grows and falls again in truth, in all of the front."""
    draws = np.random.default_rng(0)
    age, sex = draws.integers(18, 80, 4000), draws.choice(["f", "m"], 4000)
    hired = np.where(np.abs(age - 50) + draws.normal(0, 5, 4000) < 18, "yes", "no")
    table = pd.DataFrame({"age": age, "sex": sex, "hired": hired})
    fitted = fit(Wanted(table, "hired", "sex", epsilon=8.0, monotone=("age=down",)))
    encoding, made = fitted.result.data.train.encoding, fitted.result.front
    assert made is not None
    bins = [place for place, feature in enumerate(encoding.features) if feature.bin is not None]
    scores = made.front.weights[:, bins, 1] - made.front.weights[:, bins, 0]
    assert len(bins) > 3
    assert (scores.diff(dim=1) <= 0).all()
    assert (scores[0, 0] - scores[0, -1]) > 0.1
    story = save(fitted, tmp_path / "out")
    assert "yes is less probable the larger age is, all else being equal" in (tmp_path / "out/report.html").read_text()
    assert story.asked["monotone"] == ["age=down"]


@pytest.mark.parametrize("written", ["days", "durations", "decimal commas", "zeros and ones", "names"])
def test_a_column_with_a_direction_is_read_as_without_one(written: str, tmp_path: Path) -> None:
    """As what it holds by noisy counts; one that is no number by them is taken for one, and that is said."""
    draws = np.random.default_rng(0)
    age = draws.integers(18, 80, 2000)
    hired = np.where(age + draws.normal(0, 9, 2000) > 50, "yes", "no")
    ages = {"days": (pd.Timestamp("1930-01-01") + pd.to_timedelta(age * 365, unit="D")).strftime("%Y-%m-%d"),
            "durations": [f"P{years}D" for years in age], "decimal commas": [f"{years},5" for years in age],
            "zeros and ones": (age > 50).astype(int), "names": np.where(age > 50, "old", "young")}[written]
    table = pd.DataFrame({"age": ages, "sex": draws.choice(["f", "m"], 2000), "hired": hired})
    table.to_csv(tmp_path / "people.csv", index=False, sep=";")
    fitted = fit(Wanted(tmp_path / "people.csv", "hired", "sex", epsilon=20.0, monotone=("age=up",)))
    scores = save(fitted, tmp_path / "out").scorecard.query("column == 'age' and value != 'missing'")["score of yes"]
    said = "counts do not tell that age holds numbers" in (tmp_path / "out" / "report.html").read_text()
    assert (said, scores.is_monotonic_increasing) == (written == "names", True)
    assert said or scores.max() - scores.min() > 0.5


def test_the_command_takes_directions(tmp_path: Path) -> None:
    words = ["fit", str(file(tmp_path, 300)), "--label", "hired", "--group", "sex", "--monotone"]
    refused = CliRunner().invoke(app, [*words, "age=sideways"])
    assert refused.exit_code == 2
    assert "says no direction" in " ".join(refused.stderr.split())
    assert CliRunner().invoke(app, [*words, "age=up", "--out", str(tmp_path / "out")]).exit_code == 0
    assert Story.read(tmp_path / "out").asked["monotone"] == ["age=up"]


@pytest.mark.parametrize(("asked", "message"), [
    (("sex=up",), "monotone is asked of 'sex', which is the group"), (("hired=up",), "which is the label"),
    (("ages=up",), "unknown column 'ages'")])
def test_a_direction_of_what_is_no_number_is_refused_before_anything_is_released(
        asked: tuple[str, ...], message: str, tmp_path: Path) -> None:
    spent = tmp_path / "spent.jsonl"
    with pytest.raises(ValueError, match=message):
        fit(Wanted(file(tmp_path, 200), monotone=asked, count_in=spent, **FIT))
    assert not spent.exists()


@for_each("said", [{"ranges": {"ages": (0, 99)}}, {"categories": {"ages": ["1"]}}, {"edges": {"ages": (1,)}},
                   {"numbers": ["ages"]}, {"quantities": {"ages": "date"}}])
def test_what_is_said_of_a_column_that_is_not_there_is_refused_before_anything_is_released(
        said: dict[str, Any], tmp_path: Path) -> None:
    spent = tmp_path / "spent.jsonl"
    with pytest.raises(ValueError, match="unknown column 'ages': did you mean 'age'"):
        fit(Wanted(file(tmp_path, 200), count_in=spent, settings=said, **FIT))
    assert not spent.exists()


def test_a_folder_that_cannot_be_finished_is_not_left_behind(fitted: Fitted, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(story: Story) -> str:
        """Fail as a full disk does."""
        raise OSError("no space is left")

    monkeypatch.setattr("simulations.fitting.save.page", fail)
    with pytest.raises(OSError, match="no space"):
        save(fitted, tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


def test_names_from_the_table_are_escaped(tmp_path: Path) -> None:
    frame = people(3000).rename(columns={"school": "<script>alert(1)</script>"})
    frame["sex"] = frame["sex"].map({"f": "</script><b>f", "m": "m"})
    save(fit(Wanted(frame, **FIT)), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<b>f" not in page


def test_the_program_decides_as_the_model_does(folder: Path, tmp_path: Path) -> None:
    rows = people(300, seed=5)
    rows.loc[0, "school"] = "somewhere else"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    made = subprocess.run([sys.executable, "-I", str(folder / "predict.py"), str(tmp_path / "rows.csv")], check=True,
                          capture_output=True, text=True)
    (tmp_path / "predicted.csv").write_text(made.stdout)
    classifier = TrainedClassifier.load(folder)
    again = pd.read_csv(tmp_path / "rows.csv")
    expected = np.array(classifier.labels)[classifier.predict(again)]
    assert pd.read_csv(tmp_path / "predicted.csv")["predicted"].tolist() == expected.tolist()


def test_another_point_is_taken_at_no_cost(seeded: Fitted, tmp_path: Path) -> None:
    copy = tmp_path / "people"
    save(seeded, copy)
    before, runner = Story.read(copy), CliRunner()
    assert runner.invoke(app, ["choose", str(copy), "--tau", "1"]).exit_code == 0
    after = Story.read(copy)
    assert after.epsilon == before.epsilon
    assert after.tau(after.chosen) == 1
    assert after.figure("demographic_parity").value > before.figure("demographic_parity").value
    assert not after.scorecard.equals(before.scorecard)
    assert "by <code>fedfair choose</code>" in (copy / "report.html").read_text()


def test_the_command_fits_and_refuses_to_fit_again(tmp_path: Path) -> None:
    runner, table, out = CliRunner(), file(tmp_path, 3000), tmp_path / "out"
    command = ["fit", str(table), "--label", "hired", "--group", "sex", "--epsilon", "2", "--out", str(out)]
    first = runner.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "epsilon 2 at delta 1e-06 for every record: proved" in first.output.replace("\n", " ")
    again = runner.invoke(app, command)
    assert again.exit_code == 2
    assert "another release" in again.output


@pytest.mark.parametrize(("settings", "words"), [({"strategy": "dpsgd"}, "strategy is among"),
                                                 ({"figures": "exact"}, "figures is among")])
def test_settings_that_a_fit_makes_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(Wanted(file(tmp_path, 1000), settings=settings, **FIT))


def test_a_seeded_fit_is_the_same_again_and_not_proved(tmp_path: Path) -> None:
    one, other = (fit(Wanted(file(tmp_path, 2000), settings=SEEDED, **FIT)) for _ in range(2))
    assert one.result.figures == other.result.figures
    assert one.result.ledger.guarantee == "simulated"


def test_a_label_that_is_the_group_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["fit", str(file(tmp_path, 100)), "--label", "sex", "--group", "postcode,sex"])
    assert "label and group are both 'sex'" in done.stderr


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, float("nan")])
def test_a_delta_that_is_none_is_refused(tmp_path: Path, delta: float) -> None:
    with pytest.raises(ValueError, match="take one between"):
        fit(Wanted(file(tmp_path, 100), delta=delta, **FIT))


def test_each_point_of_a_story_has_its_own_tau(folder: Path) -> None:
    front, told = pd.read_parquet(folder / "front.parquet"), Story.read(folder)
    assert len({told.tau(point) for point in told.points}) > 1
    for point, tau in zip(front["point"], front["tau"], strict=True):
        assert told.tau(point) == tau
