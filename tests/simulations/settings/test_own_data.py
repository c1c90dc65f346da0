"""Settings that suit a table of one's own: what is set wins, and the reference converges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from simulations.engines.run import run
from simulations.plans.compare import experiments
from simulations.settings.presets import suited


def table(path: Path, rows: int, weight: float) -> dict[str, Any]:
    """Write a table whose label follows numbers of very different size and a category, and return its settings."""
    draws = np.random.default_rng(rows)
    frame = pd.DataFrame({
        "amount": draws.lognormal(8, 1, rows).round(2), "age": draws.integers(18, 80, rows),
        "town": draws.choice(["north", "south", "east"], rows), "sex": draws.choice(["f", "m"], rows)})
    score = weight * ((frame["age"] - 50) / 18 - (np.log(frame["amount"]) - 8) + (frame["town"] == "north"))
    frame["good"] = np.where(score + draws.logistic(0, 1, rows) > 0, "yes", "no")
    frame.to_csv(path, index=False)
    return {"csv": str(path), "label": "good", "group": "sex"}


@pytest.mark.parametrize("rows", [600, 6000])
@pytest.mark.parametrize("weight", [0.7, 3.0])
def test_the_reference_reaches_logistic_regression_and_private_training_stays_near(
        rows: int, weight: float, tmp_path: Path) -> None:
    settings = suited(table(tmp_path / "t.csv", rows, weight), None, ["sgd", "dpsgd"])
    accuracy = {}
    for made in experiments(["sgd", "dpsgd"], [0], None, settings):
        metrics = run(made).metrics
        chosen = (metrics["split"] == "test") & (metrics["group"] == "all") & (metrics["metric"] == "accuracy")
        accuracy[made.strategy] = float(metrics[chosen]["value"].iloc[-1])
    data = made.task.data()
    best = LogisticRegression(max_iter=1000).fit(data.train.x.numpy(), data.train.y.numpy()).score(
        data.test.x.numpy(), data.test.y.numpy())
    assert accuracy["sgd"] > best - 0.04
    assert accuracy["dpsgd"] > best - (0.12 if rows < 1000 else 0.04)


def test_what_is_set_wins(tmp_path: Path) -> None:
    own = table(tmp_path / "t.csv", 600, 1.0)
    assert suited(own, None, ["dpsgd"]) == {
        **own, "target_epsilon": 3.0, "delta": 1e-6, "clip_norm": 1.0, "epochs": 40.0, "batch_size": 110,
        "model": "logistic", "learning_rate": 0.5, "momentum": 0.9}
    noisy = suited({**own, "noise_multiplier": 2.0, "steps": 5, "hidden": [8], "clip_norm": 4.0}, None, ["dpsgd"])
    assert {"target_epsilon", "epochs", "model"}.isdisjoint(noisy)
    assert noisy["learning_rate"] == 0.125
    assert "momentum" not in suited({**own, "optimizer": "adam"}, None, ["dpsgd"])
    assert suited(own, None, ["dpsgd", "dp-fedavg"])["dp-fedavg.momentum"] == 0.0


def test_a_preset_and_built_in_data_are_left_alone(tmp_path: Path) -> None:
    assert suited({"dataset": "adult"}, None, ["dpsgd"]) == {"dataset": "adult"}
    own = {"csv": "nowhere.csv", "label": "a", "group": "b"}
    assert suited(own, "yang2024", ["dpsgd"]) == own
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        suited(own, None, ["dpsgd"])
