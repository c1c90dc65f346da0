"""One extreme row shows what the preparation learns from records; with public ranges it shows nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedfair.datasets import DATASETS, GroupedDataset
from fedfair.datasets.features import features
from fedfair.protocol.task import Task
from simulations import Experiment, run
from simulations.audits.outlier import INPUTS, audit_outlier, changed_source
from simulations.cli import app

RANGES = {"age": [17, 90], "hours": [0, 100], "years": [0, 40]}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": draws.integers(17, 90, 300), "hours": draws.normal(40, 10, 300).round(1),
        "years": draws.integers(0, 40, 300), "job": draws.choice(["cook", "clerk", "nurse"], 300),
        "sex": draws.choice(["f", "m"], 300), "answer": draws.choice(["yes", "no"], 300)})
    file = tmp_path_factory.mktemp("people") / "people.csv"
    frame.to_csv(file, index=False)
    return {"csv": str(file), "label": "answer", "group": "sex", "model": "logistic", "batch_size": 32, "steps": 2}


def test_the_default_scaling_is_found_and_is_nominal(people: dict[str, Any]) -> None:
    made = Experiment(**people, without=["job"])
    found = audit_outlier(made)
    assert {each.column: each.records for each in found.moved} == {"age": 299, "hours": 299, "years": 299}
    assert min(each.largest for each in found.moved) > 1
    assert found.learned is not None
    assert not found.refuted  # since the ledger says it
    assert run(made.model_copy(update={"randomness": "system"})).ledger.guarantee == "nominal"


def test_with_public_ranges_nothing_is_found(people: dict[str, Any]) -> None:
    made = Experiment(**people, without=["job"], ranges=RANGES, categories={})
    found = audit_outlier(made)
    assert (found.columns, found.moved, found.learned) == (("age", "hours", "years"), (), None)
    assert run(made.model_copy(update={"randomness": "system"})).ledger.guarantee == "proved"


def test_a_category_that_occurs_once_is_found_as_a_column_of_all(people: dict[str, Any]) -> None:
    found = audit_outlier(Experiment(**people, ranges=RANGES))
    (job,) = found.moved
    assert (job.column, job.features, job.records) == ("job", 1, 222)
    assert not found.refuted
    assert "the categories of job" in str(found.learned)


def test_rows_with_missing_values_do_not_hide_the_row(people: dict[str, Any], tmp_path: Path) -> None:
    frame = pd.read_csv(people["csv"])
    frame.loc[::7, "hours"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    gaps = {**people, "csv": str(tmp_path / "gaps.csv"), "missing": "drop", "without": ["job"]}
    assert audit_outlier(Experiment(**gaps, ranges=RANGES)).moved == ()
    assert len(audit_outlier(Experiment(**gaps)).moved) == 3


def test_scaling_that_calls_itself_public_is_refuted(people: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the ledger does not hear that means and deviations were learned."""
    monkeypatch.setattr(Task, "learned_from_records", lambda self: None)
    assert audit_outlier(Experiment(**people, without=["job"])).refuted


def test_ranges_that_do_not_clip_move_nobody_else(people: dict[str, Any]) -> None:
    """A range that a record exceeds is that record's own affair: what it adds is clipped later."""
    narrow = {name: [0, 1] for name in RANGES}
    assert audit_outlier(Experiment(**people, without=["job"], ranges=narrow)).moved == ()


def test_a_scale_by_the_largest_value_is_found(people: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted into the ranges: one of the records' own numbers in place of a public end."""
    scale = features.to_ranges

    def by_the_largest(data: Any, ranges: Any) -> Any:
        return scale(data, [(name, low, float(data.x[:, place].max())) for place, (name, low, _) in enumerate(ranges)])

    monkeypatch.setattr("fedfair.protocol.task_data.to_ranges", by_the_largest)
    assert audit_outlier(Experiment(**people, without=["job"], ranges=RANGES, categories={})).refuted


BUILT_IN = {"adult": 12, "compas": 6, "dutch": 10, "digits": 1, "bank": 15, "credit": 22, "law": 10, "mnist": 1,
            "shakespeare": 1}
"""Columns of each that are made extreme; all pixels or words are one."""


@contextmanager
def some_of(name: str) -> Iterator[None]:
    """Let a built-in data set have about two thousand of its records: the preparation is that of all."""
    whole = DATASETS[name].load

    def load(group: str | None) -> GroupedDataset:
        data = whole(group)
        rows = torch.arange(0, len(data), max(1, len(data) // 2000))
        return replace(data.take(rows), records=torch.arange(len(rows)))

    with changed_source(name, load):
        yield


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("dataset", [
    name if name == "compas" else pytest.param(name, marks=pytest.mark.slow) for name in BUILT_IN])
def test_in_built_in_data_nothing_is_found_unless_the_papers_scaling_is_asked_for(dataset: str) -> None:
    with some_of(dataset):
        found = audit_outlier(Experiment(dataset=dataset))
        learned = audit_outlier(Experiment(dataset=dataset, preprocessing="records"))
    assert len(found.columns) == BUILT_IN[dataset]
    assert (found.moved, found.learned, found.refuted) == ((), None, False)
    if INPUTS in found.columns:
        assert learned.moved == ()  # pixels and words are not scaled
    else:
        assert {each.column for each in learned.moved} == {*found.columns}
        assert not learned.refuted


@pytest.mark.usefixtures("data_dir")
def test_a_built_in_table_that_learns_behind_the_ledgers_back_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the ledger does not hear what was learned. The table is itself again after the audit."""
    made = Experiment(dataset="compas", preprocessing="records")
    before = made.task.data().train.x
    monkeypatch.setattr(Task, "learned_from_records", lambda self: None)
    found = audit_outlier(made)
    assert found.refuted
    assert {each.column: each.features for each in found.moved}["c_charge_degree"] == 1
    assert torch.equal(made.task.data().train.x, before)


def test_it_is_saved_as_json_and_refuses_what_is_no_file(people: dict[str, Any]) -> None:
    saved = json.loads(json.dumps(audit_outlier(Experiment(**people)).to_dict()))
    assert (saved["attack"], saved["refuted"], len(saved["moved"])) == ("outlier", False, 4)
    with pytest.raises(ValueError, match=r"into a CSV file or a built-in data set, but the data are 'hf:people'"):
        audit_outlier(Experiment(dataset="hf:people", label="a", group="b"))
    with pytest.raises(ValueError, match="preprocessing is private: its release is noisy"):
        audit_outlier(Experiment(**people, preprocessing="private", numbers=list(RANGES), target_epsilon=3.0))


@pytest.mark.parametrize(("planted", "code", "said"), [
    (False, 0, "means and deviations"), (True, 1, "nothing was learned")])
def test_the_command_says_what_moves_and_by_its_exit_code_whether_the_ledger_hides_it(
        people: dict[str, Any], planted: bool, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted:
        monkeypatch.setattr(Task, "learned_from_records", lambda self: None)
    settings = [f"--set={key}={json.dumps(value)}" for key, value in people.items()]
    shown = CliRunner().invoke(app, ["audit", "--attack", "outlier", *settings], env={"COLUMNS": "200"})
    assert shown.exit_code == code, shown.output
    assert "299" in shown.output
    assert said in " ".join(shown.output.split())
