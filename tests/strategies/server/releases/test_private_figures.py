"""Private figures of held-out records: what they cost, that they carry their noise, and that they say what is so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from fedfair.accounting.ledger_words import objections
from simulations import Experiment, run
from simulations.results.result import Result
from strategies.server.budget_shares import SPLITS


def experiment(**settings: Any) -> Experiment:
    """Return a short run with private figures."""
    return Experiment(**{"dataset": "digits", "model": "logistic", "steps": 3, "batch_size": 64, "target_epsilon": 2.0,
                         "figures": "private", **settings})


def moments(**settings: Any) -> Experiment:
    """Return a run of moments on compas with private figures."""
    return Experiment(**{"dataset": "compas", "strategy": "moments", "features": "binned", "model": "linear",
                         "target_epsilon": 8.0, "figures": "private", **settings})


def table(result: Result, split: str = "test") -> pd.DataFrame:
    """Return the figures of all records of a part by name."""
    assert result.figures is not None
    rows = pd.DataFrame([{"split": split, **figure._asdict()} for split, figure in result.figures.rows])
    return rows[(rows["split"] == split) & (rows["group"] == "all")].set_index("metric")


def test_figures_are_charged_to_each_part_and_nothing_is_exact() -> None:
    result = run(experiment())
    ledger = result.ledger
    for split in SPLITS:
        spent = PLDAccountant().compose(GaussianDpEvent(ledger.held_out[split].multiplier)).get_epsilon(ledger.delta)
        assert 1.95 < spent <= 2.0 + 1e-6
    assert not ledger.unprotected
    assert set(result.metrics["split"]) == {"valid", "test", "rule"}
    assert len(result.metrics["round"].unique()) <= 4
    assert type(ledger).from_dict(ledger.to_dict()).held_out == ledger.held_out


def test_with_hardly_any_noise_they_are_those_of_the_model() -> None:
    private = run(experiment(figures_epsilon=1e6))
    data = private.data.test
    with torch.no_grad():
        right = private.model(data.features(torch.arange(len(data)))).argmax(1) == data.y
    assert table(private).loc["accuracy", "value"] == pytest.approx(float(right.float().mean()), abs=0.002)
    assert table(private).loc["records", "value"] == pytest.approx(len(data), abs=1)


def test_the_noise_arrives_under_every_trust() -> None:
    for trust, share in (("central", 1), ("distributed", 1), ("local", math.sqrt(10))):
        drawn = [table(run(experiment(trust=trust, figures_epsilon=0.2, seed=seed, steps=1))) for seed in range(12)]
        records = pd.Series([float(of.loc["records", "value"]) for of in drawn])
        width = pd.Series([float(of.loc["records", "high"] - of.loc["records", "value"]) for of in drawn]).mean()
        assert 0.5 < records.std() / (width / 1.96) < 1.6, (trust, share)


def test_moments_choose_within_a_gap_on_the_validation_part(data_dir: Path) -> None:
    free, fair = run(moments()), run(moments(options={"gap": 0.05}))
    assert table(fair).loc["demographic_parity", "value"] < table(free).loc["demographic_parity", "value"] - 0.05
    assert fair.ledger.held_out["test"].multiplier == pytest.approx(free.ledger.held_out["test"].multiplier)
    assert fair.ledger.held_out["test"].multiplier == pytest.approx(fair.ledger.held_out["valid"].multiplier)
    assert fair.front is not None
    weights = next(iter(fair.model.parameters())).detach()
    assert any((point.T - weights).abs().max() < 1e-6 for point in fair.front.front.weights[1:])


def test_an_exact_run_chooses_within_a_gap_too(data_dir: Path) -> None:
    fair = run(moments(options={"gap": 0.05}, figures="held-out"))
    final = fair.metrics[(fair.metrics["split"] == "valid") & (fair.metrics["metric"] == "demographic_parity")]
    assert float(final["value"].iloc[-1]) <= 0.05


def test_a_folder_of_private_figures_can_be_published(data_dir: Path, tmp_path: Path) -> None:
    result = run(moments(randomness="system"))
    folder = result.save(tmp_path / "out")
    from simulations.results.run_folder import RunFolder

    ledger = RunFolder(folder).ledgers[""]
    assert objections(ledger) == {"training records": [], "held-out records": []}
    figures = pd.read_csv(folder / "figures.csv")
    assert {"low", "high"} <= {*figures}
    assert len(pd.read_csv(folder / "calibration.csv"))


@pytest.mark.parametrize(("settings", "words"), [
    ({"target_epsilon": None}, "figures_epsilon"), ({"metrics": ["f1_macro"]}, "metrics"),
    ({"risk_every": 1}, "risk_every"), ({"figures": "exact", "figures_epsilon": 1.0}, "figures_epsilon")])
def test_what_does_not_fit_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(experiment(**settings))


def test_figures_of_participants_are_refused(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="participants"):
        run(experiment(strategy="dp-fedavg", partition="natural", dataset="shakespeare"))
