"""Gaps among groups that a person names: the same in the fit, in the choice and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.fairness.intervals import Estimate
from simulations.cli import app
from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import save
from simulations.results.choice import with_gaps_among
from tests.simulations.fitting.tables import people

GAPS = ("demographic_parity", "selection_ratio", "equal_opportunity", "accuracy_parity", "worst_group_accuracy")


def table(folder: Path) -> Path:
    """Write a table whose groups are f, m and a few without an answer."""
    frame, draws = people(20_000), np.random.default_rng(1)
    frame["sex"] = np.where(draws.random(len(frame)) < 0.0005, "none", frame["sex"])
    frame.to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit whose gaps are among f and m."""
    out = tmp_path_factory.mktemp("fit") / "named"
    settings = {"randomness": "seeded", "gap_among": "f,m"}
    save(fit(Wanted(table(tmp_path_factory.mktemp("table")), "hired", "sex", gap=0.1, settings=settings)), out)
    return out


def test_the_gap_of_a_fit_is_that_of_the_groups_that_were_named(folder: Path) -> None:
    story = Story.read(folder)
    one, other = (story.figure("positive_rate", group) for group in ("f", "m"))
    assert story.figure("demographic_parity").value == pytest.approx(abs(one.value - other.value), abs=1e-12)
    assert story.among == ("f", "m")
    for name in ("card.md", "report.html"):
        assert "among f and m" in (folder / name).read_text()
    assert "f less m" in (folder / "card.md").read_text()
    assert re.search(r"decisions would be other: [\d.]+ of f, [\d.]+ of m\.", story.stability)  # none is not told


def test_choosing_among_other_groups_is_as_if_they_had_been_named_at_first(folder: Path, tmp_path: Path) -> None:
    front = pd.read_parquet(folder / "front.parquet")
    again = with_gaps_among(with_gaps_among(front, ["f", "m", "none"]), ["m", "f"])
    keys = ["point", "split", "group", "metric"]
    both = front.set_index(keys).join(again.set_index(keys), rsuffix=" again")
    gaps = both[both.index.get_level_values("metric").isin(GAPS)]
    assert len(gaps) > 20
    for name in ("value", "low", "high"):
        assert gaps[name].to_numpy() == pytest.approx(gaps[f"{name} again"].to_numpy(), abs=0.002), name
    assert len(again) == len(front)


def test_groups_can_be_named_when_another_point_is_chosen(tmp_path: Path) -> None:
    made, out = fit(Wanted(table(tmp_path), "hired", "sex", settings={"randomness": "seeded"})), tmp_path / "out"
    save(made, out)
    result = CliRunner().invoke(app, ["choose", str(out), "--gap-among", "f,none", "--tau", "0.5"])
    assert result.exit_code == 0, result.output
    story = Story.read(out)
    one, few = (story.figure("positive_rate", group) for group in ("f", "none"))
    found: Estimate = story.figure("demographic_parity")
    assert found.value == pytest.approx(abs(one.value - few.value), abs=1e-12)
    assert story.at(0, "demographic_parity").value == pytest.approx(
        abs(story.at(0, "positive_rate", "f").value - story.at(0, "positive_rate", "none").value), abs=1e-12)
    assert story.among == ("f", "none")
    wrong = CliRunner().invoke(app, ["choose", str(out), "--gap-among", "f,men", "--tau", "0.5"])
    assert wrong.exit_code == 2
    assert "known are f, m, none" in " ".join(wrong.stderr.split())


@pytest.mark.parametrize(("among", "said"), [
    ("f,n", "unknown group in gap_among 'n': .*known are f, m, none"), ("f", "name two groups or more"),
    ("f,f", "each once")])
def test_other_groups_are_refused_before_a_fit_is_counted(tmp_path: Path, among: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(Wanted(table(tmp_path), "hired", "sex", settings={"gap_among": among}, count_in=tmp_path / "fits.jsonl"))
    assert not (tmp_path / "fits.jsonl").exists()


def test_a_classifier_takes_groups_too() -> None:
    frame = people(6000)
    frame["sex"] = np.where(np.arange(6000) % 50 == 0, "none", frame["sex"])
    classifier = FairPrivateClassifier(epsilon=4.0, gap_among=["f", "m"], random_state=0)
    classifier.fit(frame[["age", "hours"]], frame["hired"], sensitive_features=frame["sex"])
    assert "Gaps are those among f and m" in classifier.card_
    with pytest.raises(ValueError, match="unknown group in gap_among 'x'"):
        FairPrivateClassifier(gap_among=["f", "x"]).fit(frame[["age"]], frame["hired"], sensitive_features=frame["sex"])
