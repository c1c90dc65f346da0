"""What is left in a folder, and what the table and the summary say."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedfair.accounting import Ledger
from simulations import Experiment, run
from simulations.cli import app
from simulations.compare import compare, experiments
from simulations.result import environment, summary

FILES = {"config.toml", "metrics.parquet", "summary.csv", "ledger.json", "model.safetensors", "environment.json"}
QUICK = {"hidden": (8,), "epochs": 2, "delta": 1e-4}


def test_a_folder_is_all_that_is_needed_to_run_again(tmp_path: Path) -> None:
    result = run(Experiment(strategy="dpsgd-f", **QUICK))
    result.save(tmp_path / "run")
    assert {file.name for file in (tmp_path / "run").iterdir()} == FILES
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    again = run(Experiment(**tomllib.loads((tmp_path / "run" / "config.toml").read_text())))
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in again.model.named_parameters())
    ledger = Ledger.from_dict(json.loads((tmp_path / "run" / "ledger.json").read_text()))
    assert ledger.epsilon() == pytest.approx(again.ledger.epsilon())
    metrics = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert {"round", "split", "group", "metric", "value"} <= set(metrics.columns)


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(Experiment(**QUICK))
    monkeypatch.setattr("simulations.result.save_file", lambda *_: (_ for _ in ()).throw(OSError("disk is full")))
    with pytest.raises(OSError, match="disk is full"):
        result.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_summary_has_a_row_for_each_strategy_and_costs_against_sgd_of_the_same_seed() -> None:
    results = compare(experiments(["sgd", "dpsgd"], [0, 1], None, {"hidden": [8], "epochs": 2}))
    table = summary(results).set_index("strategy")
    assert list(table.index) == ["sgd", "dpsgd"]
    accuracy = {(r.experiment.strategy, r.experiment.seed): r.metrics.query(
        "split == 'test' and metric == 'accuracy' and group == '3' and round == round.max()").value.item()
        for r in results}
    expected = sum(accuracy["sgd", s] - accuracy["dpsgd", s] for s in (0, 1)) / 2
    assert table.loc["dpsgd", "privacy_cost_3_mean"] == pytest.approx(expected)
    assert table.loc["sgd", "privacy_cost_3_mean"] == 0
    assert (table.loc["sgd", "guarantee"], table.loc["dpsgd", "guarantee"]) == ("none", "proved")
    required = ["dataset", "seeds", "epsilon", "delta", "guarantee", "accuracy_mean", "accuracy_sd",
                "accuracy_parity_mean", "accuracy_parity_sd", "demographic_parity_mean", "demographic_parity_sd"]
    assert set(required) <= set(table.columns)


def test_participants_privacy_costs_what_they_lose_against_fedavg_and_the_folder_says_what_is_not_private() -> None:
    results = compare(experiments(["sgd", "fedavg", "dp-fedavg"], [0], None, {
        "hidden": [8], "steps": 2}))
    table = summary(results).set_index("strategy")
    assert table.loc["dp-fedavg", "privacy_cost_3_mean"] == pytest.approx(
        table.loc["fedavg", "accuracy_3_mean"] - table.loc["dp-fedavg", "accuracy_3_mean"])
    assert table.loc["fedavg", "privacy_cost_3_mean"] == 0
    assert "vocabulary" not in str(environment(["digits"])["not_private"])
    assert "vocabulary" in str(environment(["digits", "shakespeare"])["not_private"])


def test_compare_prints_a_table_of_80_columns_and_saves(tmp_path: Path, data_dir: Path) -> None:
    result = CliRunner().invoke(app, [
        "compare", "--dataset", "adult", "--preset", "yang2024", "--seeds", "2", "--out", str(tmp_path / "out"),
        "--strategies", "sgd,dpsgd,dpsgd-f,dpsgd-global,dpsgd-global-adapt,gs-dp-sgd", "--set", "epochs=0.1",
        "--set", "hidden=[8]", "--set", "gs-dp-sgd.epochs=1", "--set", "dpsgd-f.options.max_bound=4"],
        env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines()[:14])) <= 80
    for word in ("Female (10,269)", "Male (21,386)", "accuracy parity", "demographic parity", "epsilon", "proved"):
        assert word in result.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES | {"statistics.csv"}
    assert len(pd.read_csv(tmp_path / "out" / "summary.csv")) == 6


def test_a_setting_can_be_meant_for_one_strategy() -> None:
    made = experiments(["sgd", "dpsgd-f"], [0], None, {"dpsgd-f.options.max_bound": 3, "dpsgd-f.learning_rate": 2.0})
    assert [e.learning_rate for e in made] == [0.5, 2.0]
    assert [e.options for e in made] == [{}, {"max_bound": 3}]
