"""`fedfair choose`: another classifier of the front, by validation figures, in place of the run's model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedfair.datasets.features.encoder import encode
from simulations import Experiment, run
from simulations.cli import app
from simulations.results.choice import Wish, best, choose
from simulations.results.classifier import TrainedClassifier
from simulations.results.front_files import read_front
from simulations.results.result import save_comparison
from simulations.results.scorecard import scorecard
from tests.strategies.two_groups import two_groups

COLUMNS = [(name, -3, 3) for name in "pqrst"]


def experiment(seed: int = 0) -> Experiment:
    """Describe a run on a table with two groups."""
    return Experiment(**two_groups(1200), strategy="moments", features="bounded", model="linear", noise_multiplier=0.5,
                      ranges=COLUMNS, categories={}, split=(0.5, 0.25, 0.25), batch_size=10, seed=seed, bins=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return run(experiment(1)).save(tmp_path / "out")


def test_the_most_accurate_classifier_within_the_limit_takes_the_models_place(folder: Path) -> None:
    _, figures, weights = read_front(folder, None)
    valid = figures.query("split == 'valid' and group == 'all'").pivot(index="point", columns="metric", values="value")
    within = valid[valid["demographic_parity"] <= 0.1]
    chosen = choose(folder, Wish({"demographic_parity": 0.1}))
    assert chosen.figures.loc["accuracy", "valid"] == within["accuracy"].max() < valid["accuracy"].max()
    assert chosen.figures.loc["demographic_parity", "valid"] <= 0.1
    saved = next(iter(TrainedClassifier.load(folder).model.parameters())).double()
    assert any(torch.allclose(saved, made.T, atol=1e-6) for made in weights)
    test = figures.query("split == 'test' and group == 'all' and metric == 'accuracy'")["value"]
    summary = pd.read_csv(folder / "summary.csv")
    assert summary["accuracy_mean"].iloc[0] == pytest.approx(chosen.figures.loc["accuracy", "test"])
    assert summary["accuracy_mean"].iloc[0] in test.tolist()
    assert tomllib.loads((folder / "choice.toml").read_text())["tau"] == chosen.point.tau
    held = json.loads((folder / "ledger.json").read_text())["files"]
    assert {path.name for path in folder.iterdir()} - {"ledger.json"} <= held.keys()


def test_a_choice_can_be_taken_back(folder: Path) -> None:
    before = pd.read_csv(folder / "summary.csv")["accuracy_mean"].iloc[0]
    choose(folder, Wish({"demographic_parity": 0.05}))
    assert pd.read_csv(folder / "summary.csv")["accuracy_mean"].iloc[0] != before
    choose(folder, Wish({}, tau=1.0))
    assert pd.read_parquet(folder / "front.parquet")["point"].nunique() > 50


def test_a_threshold_can_be_asked_for_by_its_name(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["choose", str(folder), "--threshold", "0.6", "--tau", "0", "--json"])
    assert shown.exit_code == 0, shown.output
    made = json.loads(shown.stdout)
    assert (made["threshold"], made["tau"]) == (0.6, 0.0)
    assert tomllib.loads((folder / "choice.toml").read_text())["threshold"] == 0.6
    with pytest.raises(ValueError, match=r"has the threshold 0\.6: take one of 0\.5$"):  # of every other tau alone
        choose(folder, Wish({}, tau=0.9, threshold=0.6))


def test_one_run_of_a_comparison_is_changed_and_the_others_are_not(tmp_path: Path) -> None:
    folder = save_comparison([run(experiment(seed)) for seed in (0, 1)], {"strategies": ["moments"]}, tmp_path / "out")
    with pytest.raises(ValueError, match="fronts of several runs: choose one with --run"):
        choose(folder, Wish({}))
    other = TrainedClassifier.load(folder, "moments/seed-0").model.state_dict()
    before = pd.read_parquet(folder / "metrics.parquet")
    choose(folder, Wish({"demographic_parity": 0.05}), "moments/seed-1")
    after = pd.read_parquet(folder / "metrics.parquet")
    for name, value in TrainedClassifier.load(folder, "moments/seed-0").model.state_dict().items():
        assert torch.equal(value, other[name])
    pd.testing.assert_frame_equal(after.query("seed == 0"), before.query("seed == 0"))
    assert not after.query("seed == 1").equals(before.query("seed == 1"))


def test_what_cannot_be_had_is_said_with_the_least_that_can(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    _, figures, _ = read_front(folder, None)
    with pytest.raises(ValueError, match=r"no classifier of the front has the tau 7: take one of 1, 0\.9"):
        choose(folder, Wish({}, tau=7.0))
    impossible = figures[figures["head"] != "constant"]
    with pytest.raises(ValueError, match="has a demographic_parity of at most 0 on the validation part"):
        best(impossible, Wish({"demographic_parity": 0.0}))
    with pytest.raises(ValueError, match="no validation part"):
        best(figures[figures["split"] == "test"], Wish({}))
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_worst_group_can_be_what_matters(folder: Path) -> None:
    _, figures, _ = read_front(folder, None)
    by_group = figures.query("split == 'valid' and group != 'all' and metric == 'accuracy'")
    worst = by_group.groupby("point")["value"].min()
    assert worst[best(figures, Wish({}, worst_group=True))] == worst.max()


def test_the_command_prints_what_it_chose(folder: Path) -> None:
    done = CliRunner().invoke(app, ["choose", str(folder), "--demographic-parity", "0.1", "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["figures"]["valid"]["demographic_parity"] <= 0.1
    shown = CliRunner().invoke(app, ["choose", str(folder), "--worst-group"])
    assert "the model in" in shown.stdout
    assert "demographic parity" in shown.stdout
    none = CliRunner().invoke(app, ["choose", str(folder.parent)])
    assert none.exit_code == 2
    assert "there is no front.parquet" in none.output


def test_a_scorecard_adds_up_to_the_models_scores() -> None:
    """For the rows of the table, by hand."""
    result = run(experiment())
    train, frame = result.data.train, pd.read_csv(str(experiment().csv))
    card = scorecard(result.model, train.encoding, train.labels)
    rows = frame.iloc[train.records[:50].tolist()]
    by_hand = np.zeros((50, 2))
    for at, (_, row) in enumerate(rows.iterrows()):
        by_hand[at] = card.iloc[-1][["score of 0", "score of 1"]].to_numpy(float)
        for column, own in card.iloc[:-1].groupby("column", sort=False):
            known = [feature for feature in train.encoding.features if feature.column == column]
            place = next(number for number, feature in enumerate(known)
                         if bool(feature.in_bin(torch.tensor([float(row[str(column)])]))))
            by_hand[at] += own.iloc[place][["score of 0", "score of 1"]].to_numpy(float)
    with torch.no_grad():
        scores = result.model(encode(rows, train.encoding).float()).double()
    assert np.allclose(by_hand, scores - scores.mean(1, keepdim=True), atol=1e-5)
    assert card["value"].iloc[0].startswith("under ")
    assert card["value"].iloc[-1] == ""
