"""Private selection among trainings: within the epsilon, told everywhere, and nothing of the trials is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from typer.testing import CliRunner

from fedfair.accounting.ledger_words import objections
from fedfair.accounting.selection import gained
from fedfair.mechanisms.randomness import stream
from simulations.cli import app
from simulations.fitting import private_selection
from simulations.fitting.fit import Fitted, Wanted, fit, fit_with_records
from simulations.fitting.fit_folder import Story
from simulations.fitting.privacy_statement import how_selected, how_trained
from simulations.fitting.private_selection import METHODS, Among, Candidate
from simulations.fitting.save import save
from simulations.results.classifier import TrainedClassifier
from tests.for_each import for_each
from tests.simulations.fitting.tables import file, people
from tests.simulations.fitting.test_fit import accuracy, exact_accuracy

FIT: dict[str, Any] = {"label": "hired", "group": "sex", "methods": tuple(METHODS)}
QUICK = Candidate("dpsgd", {"clip_norm": 1.0, "steps": 10, "learning_rate": 8.0})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Return a fit that ends with a model that was trained by steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_selection, "number_of_trials", lambda *_: 2)
        patch.setattr(Among, "drawn", lambda self, source: QUICK)
        return fit(Wanted(file(tmp_path_factory.mktemp("fit"), 10_000), **FIT))


@pytest.fixture(scope="module")
def folder(trained: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return its folder."""
    path = tmp_path_factory.mktemp("out") / "people"
    save(trained, path)
    return path


@pytest.fixture
def drawn_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a seed draw the number of trials and their settings, so that no rare draw fails a test."""
    monkeypatch.setattr(private_selection, "_SYSTEM", stream(8, "trials"))


@pytest.mark.usefixtures("drawn_by_seed")
def test_a_selection_is_as_right_as_can_be_and_stays_within_epsilon(tmp_path: Path) -> None:
    made = fit_with_records(Wanted(file(tmp_path, 20_000), epsilon=2.0, trials=4.0, **FIT))
    assert accuracy(made) > exact_accuracy(made) - 0.03
    ledger = made.result.ledger
    assert ledger.guarantee == "proved"
    for spent in (ledger.epsilon(), ledger.held_out_epsilon("valid"), ledger.held_out_epsilon("test")):
        assert 1.98 < spent <= 2.0


@pytest.mark.parametrize("known", [True, False])
def test_epsilon_is_computed_again_from_the_ledger_by_dp_accounting(known: bool, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_selection, "number_of_trials", lambda *_: 1)
    monkeypatch.setattr(Among, "drawn", lambda self, source: Candidate("moments", {}))
    settings = {"numbers": ["age", "hours", "postcode"], "categorical": ["school"]} if known else {}
    ledger = fit(Wanted(file(tmp_path), settings=settings, **FIT)).result.ledger
    assert ledger.preprocessing is not None
    beside = {"train": [ledger.preprocessing.multiplier], "valid": [ledger.held_out["valid"].multiplier]}
    for part, delta, printed in (("train", ledger.delta - ledger.preprocessing.delta, ledger.epsilon()),
                                 ("valid", ledger.delta, ledger.held_out_epsilon("valid"))):
        selection, composed = ledger.selections[part], PLDAccountant()
        for multiplier in (*beside[part], selection.multiplier):
            composed.compose(GaussianDpEvent(multiplier))
        weights, gains = gained(selection)
        again = sum(weights * [composed.get_delta(printed - gain) for gain in gains])
        assert again == pytest.approx(delta, rel=5e-3)
        assert 0.99 < printed <= 1.0


def test_the_default_is_moments_alone(tmp_path: Path) -> None:
    made = fit(Wanted(file(tmp_path, 2000), "hired", "sex", settings={"randomness": "seeded"}))
    assert made.among is None
    assert made.result.ledger.selections == {}
    assert "candidates" not in save(made, tmp_path / "out").asked


@pytest.mark.usefixtures("drawn_by_seed")
def test_the_number_of_trials_is_drawn_and_the_best_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real draws; only the trainings are made up."""
    table, scores, numbers = file(tmp_path, 1000), list[float](), list[int]()
    real = private_selection._trial

    def trial(*parts: Any) -> private_selection.Trial:
        """Train moments, quickly."""
        made = real(*parts)
        scores.append(made.score)
        return made

    def measured(best: private_selection.Trial, *rest: Any) -> Any:
        """See that the best is kept."""
        assert best.score == max(scores)
        return kept(best, *rest)

    kept = private_selection._measured
    monkeypatch.setattr(private_selection, "_trial", trial)
    monkeypatch.setattr(private_selection, "_measured", measured)
    monkeypatch.setattr(Among, "drawn", lambda self, source: Candidate("moments", {}))
    for _ in range(5):
        scores.clear()
        fit(Wanted(table, settings={"numbers": ["age", "hours", "postcode"]}, **FIT))
        numbers.append(len(scores))
    assert len({*numbers}) > 2


def test_the_folder_can_be_published_and_tells_how_the_model_was_selected(folder: Path) -> None:
    story = Story.read(folder)
    assert objections(story.ledger) == {"training records": [], "held-out records": []}
    assert "trained by dpsgd, 10 steps at learning rate 8" in how_trained(story)
    told = how_selected(story)
    assert "10 expected" in told
    assert "dpsgd (clip norm 1, steps 20 or 60, learning rate 3 or 8)" in told
    for name in ("card.md", "card.json", "report.html"):
        assert "steps 20 or 60" in (folder / name).read_text()
    assert json.loads((folder / "card.json").read_text())["deployment"]["epsilon"] == story.epsilon <= 1.0


def test_a_model_that_was_trained_by_steps_is_a_scorecard_too(folder: Path, tmp_path: Path) -> None:
    people(300, seed=5).to_csv(tmp_path / "rows.csv", index=False)
    made = subprocess.run([sys.executable, "-I", str(folder / "predict.py"), str(tmp_path / "rows.csv")], check=True,
                          capture_output=True, text=True)
    (tmp_path / "predicted.csv").write_text(made.stdout)
    classifier = TrainedClassifier.load(folder)
    expected = np.array(classifier.labels)[classifier.predict(pd.read_csv(tmp_path / "rows.csv"))]
    assert pd.read_csv(tmp_path / "predicted.csv")["predicted"].tolist() == expected.tolist()
    story = Story.read(folder)
    assert story.points == [0]
    assert story.figure("accuracy").told


def test_the_command_selects_and_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Among, "drawn", lambda self, source: Candidate("moments", {}))
    monkeypatch.setattr(private_selection, "number_of_trials", lambda *_: 3)
    runner, out = CliRunner(), tmp_path / "out"
    command = ["fit", str(file(tmp_path, 3000)), "--label", "hired", "--group", "sex", "--methods", "moments,dpsgd"]
    made = runner.invoke(app, [*command, "--trials", "auto", "--out", str(out)])
    assert made.exit_code == 0, made.output
    assert "the best of a random number of trials, 10 expected" in " ".join(made.output.split())
    assert runner.invoke(app, ["choose", str(out), "--tau", "0"]).exit_code == 0
    assert Story.read(out).tau(Story.read(out).chosen) == 0
    wrong = runner.invoke(app, [*command, "--trials", "many"])
    assert wrong.exit_code == 2
    assert "give the expected number" in wrong.output


@for_each(("changed", "words"), [
    ({"gap": 0.1}, "leave gap out"), ({"settings": {"randomness": "seeded"}}, "share their noise"),
    ({"settings": {"trust": "local"}}, "must be trusted"),
    ({"settings": {"learning_rate": 3.0}}, "learning_rate is among"),
    ({"settings": {"split": [0.8, 0.0, 0.2]}}, "give it a share"), ({"trials": 0.5}, "number above 1")])
def test_what_a_selection_cannot_do_is_refused_before_it_begins(
        changed: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.fitting.fit.kinds", None)  # the first release
    with pytest.raises(ValueError, match=words):
        fit(Wanted(file(tmp_path, 1000), **{**FIT, **changed}))
