"""Weights of records and classes, from a column and from settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedfair.protocol.task import Task
from simulations import Experiment, run
from tests.for_each import for_each


def own(tmp_path: Path, weights: list[Any], **settings: Any) -> dict[str, Any]:
    """Write a file with a column of weights, and return the settings of a task on it."""
    frame = pd.DataFrame({"age": range(60), "sex": ["f", "m"] * 30, "good": [0, 0, 1] * 20,
                          "w": (weights * 60)[:60], "who": [row // 2 for row in range(60)]})
    frame.to_csv(tmp_path / "own.csv", index=False)
    return {"csv": str(tmp_path / "own.csv"), "label": "good", "group": "sex", **settings}


@pytest.mark.parametrize("known", [{}, {"ranges": {"age": [0, 60], "who": [0, 30]}, "categories": {"sex": ["f", "m"]}}])
def test_a_weight_stays_with_its_record_and_is_no_feature(tmp_path: Path, known: dict[str, Any]) -> None:
    task = Task(**own(tmp_path, [1, 2.5, 0], record_weight="w", class_weights={"1": 4}, **known))
    for _, part in task.data():
        row = part.records
        assert torch.equal(part.weight, torch.tensor([1, 2.5, 0])[row % 3].double() * torch.where(row % 3 == 2, 4, 1))
        assert {*part.columns} == {"age", "who"}
    held = task.model_copy(update={"partition": "site", "clients": 3}).clients_data()
    assert torch.equal(held[1].train.weight, held.together.train.take(held.rows(1)).weight)
    assert not len(Task(**own(tmp_path, [1])).data().train.weight)
    assert Task.model_validate_json(task.text) == task


@for_each(("weights", "settings", "message"), [
    ([1, -1], {"record_weight": "w"}, "'w' has '-1' in row 2: a weight is a number from 0 to 1,000,000"),
    ([1, 1e7], {"record_weight": "w"}, "in row 2: a weight is a number from 0"),
    (["x", 1], {"record_weight": "w"}, "missing values in w"),
    ([0], {"record_weight": "w"}, "is 0 in every row"),
    ([1], {"record_weight": "ww"}, "unknown column 'ww'"),
    ([1], {"record_weight": "sex"}, "the column of label, group or participant"),
    ([1], {"class_weights": {"2": 4}}, "unknown class of class_weights '2'"),
    ([1], {"class_weights": "balanced"}, "weights counted from the records would tell of every one of them"),
    ([1], {"class_weights": {"1": 1e7}}, "class_weights")])
def test_weights_that_are_none_are_refused(tmp_path: Path, weights: list[Any], settings: dict[str, Any], message: str
                                           ) -> None:
    with pytest.raises(ValueError, match=message):
        Task(**own(tmp_path, weights, **settings)).data()


@pytest.mark.parametrize(("strategy", "settings"), [
    ("dpsgd", {}), ("dpsgd", {"sync": "epoch"}), ("sgd", {}),
    ("dp-fedavg", {"partition": "natural", "participant": "who", "options": {"participation": 0.5}})])
@pytest.mark.usefixtures("keyed_by_seed")
def test_every_way_of_training_uses_them(tmp_path: Path, strategy: str, settings: dict[str, Any]) -> None:
    given = own(tmp_path, [1], strategy=strategy, model="logistic", delta=1e-3, steps=3, batch_size=20,
                clip_norm=100, **settings)
    plain, weighted = (run(Experiment(**given, **extra)) for extra in ({}, {"class_weights": {"1": 50}}))
    assert not torch.equal(next(plain.model.parameters()), next(weighted.model.parameters()))
    same = run(Experiment(**given, record_weight="w")), run(Experiment(**given, without=("w",)))
    assert torch.allclose(*(next(result.model.parameters()) for result in same))


def test_what_knows_no_weights_refuses_them(tmp_path: Path) -> None:
    given = own(tmp_path, [1], class_weights={"1": 2})
    with pytest.raises(ValueError, match="risk_every describes steps on losses without weights"):
        Experiment(**given, risk_every=1)
    with pytest.raises(ValueError, match="fairlens has no weights"):
        run(Experiment(**given, strategy="fairlens", steps=1, batch_size=20, delta=1e-3, model="logistic"))
