"""Hazard 27: one unusual record, put in before preprocessing, must not show in the weights of a proved run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from simulations.engines.run import run
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from tests.for_each import for_each

PUBLIC: dict[str, Any] = {"ranges": {"income": [0, 100]}, "categories": {"town": ["north", "south", "other"]}}
PRIVATE: dict[str, Any] = {"preprocessing": "private", "numbers": ["income"], "preprocessing_epsilon": 1.0}
UNUSUAL: dict[str, dict[str, Any]] = {
    "a large number": {"income": 1e7}, "a very small number": {"income": -1e12},
    "a number near zero": {"income": 1e-30},
    "a category of its own": {"town": "atlantis"}, "both": {"income": 1e9, "town": "atlantis"},
    "a category that looks like a number": {"town": "1e5"}}
RUNS = 6


def people() -> pd.DataFrame:
    """Return a table in which income decides the label."""
    draws = np.random.default_rng(0)
    income = draws.normal(50, 10, 1500).round(1)
    return pd.DataFrame({"income": income, "town": draws.choice(["north", "south"], 1500),
                         "sex": draws.choice(["f", "m"], 1500), "good": (income > 50).astype(int)})


def made(frame: pd.DataFrame, path: Path, **settings: Any) -> Experiment:
    """Return a run on a table, whose last record is one of the training part."""
    frame.to_csv(path, index=False)
    return Experiment(**{
        "csv": str(path), "label": "good", "group": "sex", "model": "logistic", "strategy": "dpsgd",
        "split": (0.8, 0.0, 0.2), "seed": 0, "batch_size": 400, "steps": 15, "learning_rate": 1.0, "delta": 1e-5,
        "noise_multiplier": 8.0, "randomness": "system", "eval_every": 1000, **settings})


def runs(frame: pd.DataFrame, path: Path, **settings: Any) -> list[Result]:
    """Return results of equal runs on a table, each with other noise."""
    experiment = made(frame, path, **settings)
    return [run(experiment) for _ in range(RUNS)]


def with_record(frame: pd.DataFrame, values: dict[str, Any]) -> pd.DataFrame:
    """Return the table with other values in a record that is trained on."""
    changed = frame.astype({"income": float})
    for column, value in values.items():
        changed.loc[7, column] = value
    return changed


def weights(result: Result) -> Tensor:
    """Return what a run publishes of its model, as one vector."""
    return torch.cat([parameter.detach().flatten().double() for parameter in result.model.parameters()])


def separation(first: list[Tensor], second: list[Tensor]) -> float:
    """Return how many standard errors the means of two sets of runs are apart, at most over all weights."""
    a, b = torch.stack(first), torch.stack(second)
    error = ((a.var(0) + b.var(0)) / len(a)).sqrt()
    return float(((a.mean(0) - b.mean(0)).abs() / error.clamp(min=1e-9)).max())


def test_scaling_by_the_records_gives_the_outlier_away_and_is_called_nominal(tmp_path: Path) -> None:
    """The attack of standardise_refute.py: it must go on working, or the tests below show nothing."""
    plain = runs(people(), tmp_path / "a.csv")
    changed = runs(with_record(people(), UNUSUAL["a large number"]), tmp_path / "b.csv")
    assert {result.ledger.guarantee for result in (*plain, *changed)} == {"nominal"}
    assert "one extreme record moves all of them" in plain[0].ledger.reason
    assert separation([*map(weights, plain)], [*map(weights, changed)]) > 12


def test_a_category_of_its_own_changes_the_shape_of_a_nominal_model(tmp_path: Path) -> None:
    """The attack of rare.py."""
    plain = run(made(people(), tmp_path / "a.csv"))
    changed = run(made(with_record(people(), UNUSUAL["a category of its own"]), tmp_path / "b.csv"))
    assert plain.ledger.guarantee == changed.ledger.guarantee == "nominal"
    assert len(weights(plain)) != len(weights(changed))


@pytest.mark.parametrize("settings", [PUBLIC, PRIVATE], ids=["public", "private"])
def test_an_unusual_record_does_not_show_in_a_proved_run(settings: dict[str, Any], tmp_path: Path) -> None:
    plain = runs(people(), tmp_path / "a.csv", **settings)
    for unusual, values in UNUSUAL.items():
        changed = runs(with_record(people(), values), tmp_path / "b.csv", **settings)
        assert {result.ledger.guarantee for result in (*plain, *changed)} == {"proved"}, unusual
        assert {result.data.train.columns for result in (*plain, *changed)} == {plain[0].data.train.columns}, unusual
        assert separation([*map(weights, plain)], [*map(weights, changed)]) < 12, unusual


@for_each("unusual", UNUSUAL)
def test_an_unusual_record_moves_the_features_of_no_other(unusual: str, tmp_path: Path) -> None:
    before = made(people(), tmp_path / "a.csv", **PUBLIC).task.data().train
    after = made(with_record(people(), UNUSUAL[unusual]), tmp_path / "b.csv", **PUBLIC).task.data().train
    others = before.records != 7
    assert torch.equal(before.records, after.records)
    assert torch.equal(before.x[others], after.x[others])
