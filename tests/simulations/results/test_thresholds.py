"""Thresholds as a user meets them: settings, what is refused, and what the folder holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.accounting import Ledger
from simulations import Experiment
from simulations.cli import app
from simulations.flower_run import experiment_of as from_run_config
from simulations.plans.compare import experiments
from simulations.settings.experiment import SettingsError
from simulations.settings.presets import preset
from tests.for_each import for_each


@for_each(("settings", "expected"), [
    ({"threshold": "tok"}, "threshold is 'tok': it should be 'none', 'roc', 'toc' or 'by-group'"),
    ({"threshold": "toc", "theta": 1.5}, r"theta is 1\.5: it should be less than or equal to 1"),
    ({"threshold": "roc", "gamma": 0.3}, r"gamma is 0\.3: it should be greater than or equal to 0\.5"),
    ({"threshold": "toc", "gamma": 0.6}, "gamma is 0.6, but threshold is 'toc': it is only used with"),
    ({"threshold": "by-group", "deprived": "a"}, "deprived is .*, but threshold is 'by-group'"),
    ({"threshold_epsilon": 1.0}, "threshold_epsilon is 1.0, but threshold is 'none': it is only used where"),
    ({"threshold": "roc", "gamma": 0.6, "threshold_confidence": 0.9}, "it is only used where a gamma is looked for"),
    ({"threshold": "toc", "threshold_epsilon": 0.0}, "threshold_epsilon is 0.0: it should be greater than 0"),
    ({"threshold": "toc", "split": (0.8, 0.0, 0.2)}, "looked for in the validation part, but split is"),
    ({"strategy": "gs-dp-sgd-to", "split": (0.8, 0.0, 0.2)}, "looked for in the validation part, but split is"),
    ({"strategy": "gs-dp-sgd-ta"}, "unknown strategy 'gs-dp-sgd-ta': did you mean 'gs-dp-sgd-to'"),
])
def test_a_wrong_threshold_is_refused(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        Experiment(**settings)


def test_a_combination_brings_its_settings_and_its_strategys_preset() -> None:
    assert preset("yang2024", "adult", "gs-dp-sgd-to") == preset("yang2024", "adult", "gs-dp-sgd")
    made = experiments(["gs-dp-sgd-to", "dpsgd-p"], [0], "yang2024", {"dataset": "adult", "dpsgd-p.theta": 0.1})
    assert [(e.threshold, e.theta, e.optimizer) for e in made] == [("toc", 0.05, "adam"), ("roc", 0.1, "sgd")]
    assert Experiment(strategy="dpsgd-p", threshold="none").threshold == "none"


def test_flowers_run_config_takes_names_of_groups() -> None:
    config = {"strategy": "dpsgd-p", "split": "[0.7, 0.1, 0.2]", "gamma": ""}
    made = from_run_config({**config, "deprived": '["a", "b"]', "theta": 0.1})
    assert (made.deprived, made.theta, made.gamma) == (("a", "b"), 0.1, None)
    assert from_run_config({**config, "deprived": "a"}).deprived == ("a",)


@pytest.fixture
def table(tmp_path: Path) -> list[str]:
    """Return arguments for a small file of two groups, one with fewer records of class 1."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 2, 500), rng.normal(size=500)
    rows = [f"{a:.3f},{'ab'[k]},{int(a + k > 0.8)}" for a, k in zip(x, group, strict=True)]
    (tmp_path / "own.csv").write_text("\n".join(["x,group,label", *rows]))
    return ["--csv", str(tmp_path / "own.csv"), "--label", "label", "--group", "group", "--set", "model=logistic",
            "--set", "steps=8", "--set", "batch_size=32", "--set", "learning_rate=0.5", "--set", "accountant=rdp"]


def test_the_folder_tells_the_threshold_and_who_is_protected(table: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["compare", *table, "--strategies", "dpsgd,dpsgd-p,gs-dp-sgd-to", "--seeds", "1",
                                      "--jobs", "1", "--set", "gs-dp-sgd-to.threshold_epsilon=2.0", "--out", str(out)])
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "The thresholds of dpsgd-p were searched on validation data, which is not protected" in said
    assert "The threshold of gs-dp-sgd-to was searched on validation data, at an epsilon of 2.00 for" in said
    assert "Thresholds equalise the rate of '1'; set favourable to choose another class." in said
    thresholds = json.loads((out / "thresholds.json").read_text())
    assert set(thresholds) == {"dpsgd-p/seed-0", "gs-dp-sgd-to/seed-0"}
    found = thresholds["dpsgd-p/seed-0"]
    assert (set(found["gammas"]), len(found["deprived"]), found["privacy"]) == (
        {"a", "b"}, 1, "validation data: not protected")
    ledgers = json.loads((out / "ledger.json").read_text())
    assert ledgers["dpsgd/seed-0"]["validation_data"] == "validation data: not used, but for metrics"
    assert "validation data: epsilon 2" in ledgers["gs-dp-sgd-to/seed-0"]["validation_data"]
    again = Ledger.from_dict(ledgers["gs-dp-sgd-to/seed-0"])
    assert 1.98 < again.held_out_epsilon("valid") <= 2
    summary = pd.read_csv(out / "summary.csv").set_index("strategy")["validation_epsilon"]
    assert summary.to_dict() == pytest.approx(
        {"dpsgd": 0, "dpsgd-p": np.inf, "gs-dp-sgd-to": again.held_out_epsilon("valid")})
    splits = set(pd.read_parquet(out / "metrics.parquet").query("strategy == 'dpsgd-p'")["split"])
    assert {"test", "test before threshold", "valid before threshold"} <= splits


def test_a_validation_part_without_a_group_is_refused_before_training(table: list[str]) -> None:
    result = CliRunner().invoke(app, ["run", *table, "--strategy", "dpsgd-p", "--set", "split=[0.798, 0.002, 0.2]"])
    assert result.exit_code == 2
    assert "looked for in the validation part, which has no record of group" in " ".join(result.stderr.split())
