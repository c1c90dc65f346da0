"""A task is checked when it is made, and gives every client its records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedfair.protocol.task import Task
from tests.for_each import for_each


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Write a small file of the user's own."""
    frame = pd.DataFrame({"age": range(40), "town": ["x", "y", "z", "x"] * 10, "sex": ["f", "m"] * 20,
                          "good": [0, 0, 1, 1] * 10})
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


@for_each(("settings", "field", "value", "allowed"), [
    ({"clients": 0}, "clients", 0, "greater than or equal to 1"),
    ({"seed": -1}, "seed", -1, "greater than or equal to 0"),
    ({"partition": "town"}, "partition", "town", "'group', 'site', 'natural' or 'nodes'"),
    ({"dtype": "float16"}, "dtype", "float16", "'float32' or 'float64'"),
    ({"hidden": (4, 0)}, "hidden", 0, "greater than or equal to 1"),
    ({"split": (0.7, 0.4, -0.1)}, "split", -0.1, "greater than or equal to 0"),
    ({"split": (0.7, 0.3)}, "split", (0.7, 0.3), "Field required"),
    ({"split": (float("nan"), 0.3, 0.2)}, "split", float("nan"), "finite number"),
    ({"colour": "red"}, "colour", "red", "not permitted")])
def test_a_wrong_value_names_field_value_and_what_is_allowed(settings: dict[str, Any], field: str, value: object,
                                                             allowed: str) -> None:
    with pytest.raises(ValidationError) as error:
        Task(**settings)
    problem = error.value.errors()[0]
    assert problem["loc"][0] == field
    assert repr(problem["input"]) == repr(value)
    assert allowed in problem["msg"]


@for_each(("settings", "message"), [
    ({"dataset": "adlt"}, "unknown data set 'adlt': did you mean 'adult'"),
    ({"model": "mpl"}, "unknown model 'mpl': did you mean 'mlp'"),
    ({"balance": "even"}, "unknown balance of digits 'even': known are none: leave it out"),
    ({"dataset": "adult", "balance": "balance"}, "unknown balance of adult 'balance': did you mean 'balanced'"),
    ({"split": (0.5, 0.5, 0.5)}, r"split is \[0\.5, 0\.5, 0\.5\]: the shares of train, valid and test must sum to 1"),
    ({"split": (0.0, 0.5, 0.5)}, "train and test must not be 0"),
    ({"split": (0.5, 0.5, 0.0)}, "train and test must not be 0"),
    ({"device": "abacus"}, "device 'abacus' cannot be used here: take cpu, or cuda"),
    ({"csv": "people.csv"}, "give label and group"),
    ({"csv": "people.csv", "label": "y", "group": "sex", "participant": "y"}, "participant is 'y', the column of the"),
    ({"csv": "people.csv", "label": "y"}, "give label and group")])
def test_values_that_do_not_fit_together_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Task(**settings)


def test_a_task_is_frozen_and_travels_as_json() -> None:
    task = Task(hidden=(4, 5), imbalance="8:9%", clients=3)
    with pytest.raises(ValidationError, match="frozen"):
        task.seed = 1
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert Task.model_validate_json(task.text) == task
    changed = task.model_copy(update={"seed": task.seed + 1})  # after `text` was asked for once
    assert Task.model_validate_json(changed.text) == changed
    assert hash(task) == hash(Task(hidden=(4, 5), imbalance="8:9%", clients=3))


def test_one_client_for_each_group_unless_told_otherwise() -> None:
    for parts, name in zip(Task().clients_data().values(), "0123456789", strict=True):
        assert all(set(part.group.tolist()) <= {int(name)} for _, part in parts)
        assert len(parts.train) > 0


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 25), st.sampled_from(["group", "site"]))
def test_the_clients_hold_every_record_once_with_its_features(clients: int, partition: Any) -> None:
    task = Task(clients=clients, partition=partition, dtype="float64")
    held, whole = list(task.clients_data().values()), task.data()
    assert len(held) == clients
    for split, part in whole:
        own = [getattr(parts, split) for parts in held]
        records = torch.cat([p.records for p in own])
        order = records.argsort()
        assert torch.equal(records[order], part.records.sort().values)
        assert torch.equal(torch.cat([p.x for p in own])[order], part.x[part.records.argsort()])
        assert torch.equal(torch.cat([p.group for p in own])[order], part.group[part.records.argsort()])
        assert all(p.names == part.names and p.classes == part.classes for p in own)
    if partition == "site":
        sizes = [len(parts.train) for parts in held]
        assert max(sizes) - min(sizes) <= 1


def test_records_keep_their_numbers_whoever_holds_them() -> None:
    """Sampling depends on the numbers: they must not depend on the partition."""
    numbered = [{int(r): x for parts in Task(clients=clients, partition=partition).clients_data().values()
                 for r, x in zip(parts.train.records, parts.train.x.flatten(1).sum(1).tolist(), strict=True)}
                for clients, partition in ((1, "group"), (10, "group"), (7, "site"))]
    assert numbered[0] == numbered[1] == numbered[2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_data_and_model_have_the_runs_dtype(dtype: Any) -> None:
    task = Task(dtype=dtype, hidden=(4,))
    model, parts = task.build_model(), task.data()
    assert {p.dtype for p in model.parameters()} == {part.x.dtype for _, part in parts} == {getattr(torch, dtype)}
    assert parts.train.y.dtype == torch.long
    assert model(parts.train.x[:3]).shape == (3, 10)


def test_data_are_made_once() -> None:
    assert Task(seed=5).data() is Task(seed=5).data()
    assert Task(seed=5).data() is not Task(seed=6).data()


def test_the_seed_decides_the_split() -> None:
    first, other = (set(Task(seed=seed).data().train.records.tolist()) for seed in (0, 1))
    assert first != other


def test_one_group_is_thinned_out_in_the_training_part_only() -> None:
    plain, thin = Task().data(), Task(imbalance="8:40").data()
    assert thin.train.group_sizes()[8] == 40
    assert thin.train.group_sizes()[:8] == plain.train.group_sizes()[:8]
    assert torch.equal(thin.test.records, plain.test.records)


def test_a_group_without_training_records_is_refused() -> None:
    with pytest.raises(ValueError, match="group '8' has no record in the training part: take a larger share"):
        Task(imbalance="8:0").data()


def test_a_csv_of_ones_own(own: Path) -> None:
    task = Task(csv=str(own), label="good", group="sex")
    parts = task.data()
    assert task.dataset == "people"
    assert sum(len(part) for _, part in parts) == 40
    assert 20 <= len(parts.train) <= 36  # each row is dealt by itself
    assert parts.train.names == ("f", "m")
    assert float(parts.train.x[:, 0].mean()) == pytest.approx(0, abs=1e-6)
    assert task.build_model()(parts.test.x).shape == (len(parts.test), 2)


def test_a_changed_csv_is_read_again(own: Path) -> None:
    task = Task(csv=str(own), label="good", group="sex")
    before = task.data().train.names
    own.write_text(own.read_text().replace(",f,", ",w,"))
    os.utime(own, ns=(1, 1))
    assert (before, task.data().train.names) == (("f", "m"), ("m", "w"))


def test_a_csv_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere\.csv"):
        Task(csv="nowhere.csv", label="y", group="g").data()


@for_each("known", [{"ranges": {"incom": [0, 1]}, "categories": {}}, {"categories": {"incom": ["x", "other"]}},
                    {"ranges": {"incom": [0, 1]}, "preprocessing": "private", "features": "binned"}])
def test_what_is_known_of_a_column_that_is_absent_is_refused(known: dict[str, Any], own: Path) -> None:
    """It may be a misspelled one, which is then learned, or paid for, all the same."""
    task = Task(csv=str(own), label="good", group="sex", without=("age",), **known)
    with pytest.raises(ValueError, match="unknown column 'incom'"):
        task.data()


def test_what_preprocessing_learns_from_the_records_is_said(tmp_path: Path) -> None:
    """Hazard 27: clipping does not bound what one record changes if it moves the features of all others."""
    file = tmp_path / "own.csv"
    file.write_text("x,town,label,group\n" + "".join(f"{i % 40}.5,{'nsw'[i % 3]},{i % 2},{'ab'[i // 2 % 2]}\n"
                                                     for i in range(90)))
    own = {"csv": str(file), "label": "label", "group": "group"}
    both = Task(**own).learned_from_records() or ""
    assert "means and deviations of the training records" in both
    assert "the categories of town are those that occur" in both
    ranges = {"ranges": {"x": [0, 50]}}
    assert (Task(**own, **ranges).learned_from_records() or "").startswith("the categories of town")
    assert (Task(**own, **ranges, without=("town",)).learned_from_records() or "").startswith("which columns hold")
    assert Task(**own, **ranges, categories={}, without=("town",)).learned_from_records() is None
    assert Task().learned_from_records() is None
