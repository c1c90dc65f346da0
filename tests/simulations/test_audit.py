"""Audits stay below what is proved, get a fair part of it, and exceed it when a mistake is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from fedfair import host, noise
from fedfair.noise import Trust
from simulations import Experiment, run
from simulations.audit import DEFAULTS, Audit, audit, membership
from simulations.cli import app
from strategies import STRATEGIES, base
from tests.strategies.test_contract import OPTIONS, WITHOUT_PRIVACY

AUDITED = [name for name in STRATEGIES if STRATEGIES[name].nominal is None and STRATEGIES[name].protects == "record"
           and name not in WITHOUT_PRIVACY]
MODES = [(name, sync) for name in AUDITED for sync in STRATEGIES[name].modes]
QUICK = {"split": (0.1, 0.0, 0.9), "hidden": (60,), "steps": 8, "batch_size": 90, "target_epsilon": None,
         "noise_multiplier": 4.0}


def experiment(strategy: str = "dpsgd", **settings: Any) -> Experiment:
    return Experiment(**{**DEFAULTS, **QUICK, "strategy": strategy, "options": OPTIONS.get(strategy, {}), **settings})


@pytest.fixture(autouse=True)
def one_thread(two_threads: None) -> None:
    """Tensors are small here."""
    torch.set_num_threads(1)


def less_noise(patch: pytest.MonkeyPatch, by: float) -> None:
    """A mistake: the noise has a fraction of the deviation that the ledger charges."""

    def weak(kind: Any, values: Any, deviation: float, source: Any) -> dict[str, Tensor]:
        return noise.add_noise(kind, values, deviation * by, source)

    for module in (base, host):
        patch.setattr(module, "add_noise", weak)


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_what_is_found_stays_below_what_is_claimed(strategy: str, sync: str) -> None:
    found = audit(experiment(strategy, sync=sync), canaries=4000)
    assert found.guarantee == "proved"
    assert not found.refuted
    assert found.overall.bound.epsilon < found.overall.claimed
    assert [finding.group for finding in found.findings] == ["all", *map(str, range(10))]


@pytest.mark.parametrize("trust", list(Trust))
@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_every_trust_is_attacked_where_its_noise_is(sync: str, trust: Trust) -> None:
    """Under local trust at the client, so that the noise of the others does not help."""
    found = audit(experiment(trust=trust, sync=sync), canaries=4000).overall
    assert 0.2 * found.claimed < found.bound.epsilon < found.claimed


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_a_quarter_of_the_noise_is_noticed(sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    less_noise(monkeypatch, 1 / 4)
    assert audit(experiment(sync=sync, noise_multiplier=8.0), canaries=4000).refuted


def test_without_noise_there_is_nothing_to_refute() -> None:
    found = audit(experiment("sgd"), canaries=400)
    assert (found.guarantee, found.refuted) == ("none", False)
    assert found.overall.bound.correct == found.overall.bound.guesses


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(ValueError, match="plain SGD, but optimizer is 'adam'"):
        audit(experiment("gs-dp-sgd", optimizer="adam"))
    with pytest.raises(ValueError, match=r"canaries is 20000, but the model has \d+ parameters"):
        audit(experiment())
    with pytest.raises(ValueError, match="'dp-fedavg' has no sums of single gradients"):
        audit(Experiment(**{**DEFAULTS, "strategy": "dp-fedavg", "hidden": (8,)}))


def test_members_are_found_in_a_model_that_knows_its_records_by_heart(tmp_path: Path) -> None:
    """Labels are drawn by lot: what is right about them can only be remembered. A private model remembers little."""
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(draws.normal(size=(600, 20)))
    frame.assign(label=draws.integers(2, size=600), group=np.arange(600) % 2).to_csv(tmp_path / "lots.csv", index=False)
    made = Experiment(csv=str(tmp_path / "lots.csv"), label="label", group="group", split=(0.5, 0.0, 0.5), hidden=(64,),
                      optimizer="adam", learning_rate=0.01, steps=400, batch_size=300, strategy="sgd", delta=1e-5)
    known = membership(run(made))
    assert known.overall.bound.epsilon > 1
    assert all(finding.bound.epsilon > 0.5 for finding in known.findings)
    private = membership(run(made.model_copy(update={"strategy": "dpsgd", "noise_multiplier": 20.0, "steps": 30})))
    assert not private.refuted
    assert private.overall.if_gaussian is None


def test_the_command_prints_saves_and_says_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"--set={key}={json.dumps(value)}" for key, value in QUICK.items() if value is not None]
    command = ["audit", "--canaries", "4000", "--out", str(tmp_path / "audit.json"), *settings]
    good = CliRunner().invoke(app, [*command, "--epsilon", "3"], env={"COLUMNS": "100"})
    assert good.exit_code == 0, good.output
    assert "REFUTED" not in good.output
    saved = json.loads((tmp_path / "audit.json").read_text())["audits"][0]
    assert (saved["attack"], saved["refuted"], len(saved["findings"])) == ("white box", False, 11)
    less_noise(monkeypatch, 1 / 4)
    bad = CliRunner().invoke(app, [*command, "--epsilon", "3"], env={"COLUMNS": "100"})
    assert bad.exit_code == 1
    assert "REFUTED" in bad.output


def strongly(strategy: str, epsilon: float, seed: int, **settings: Any) -> Audit:
    return audit(Experiment(**{**DEFAULTS, "strategy": strategy, "target_epsilon": epsilon, "seed": seed,
                               "options": OPTIONS.get(strategy, {}), **settings}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("strategy", AUDITED)
def test_bounds_hold_and_dpsgd_gets_35_percent_of_its_claim(strategy: str, epsilon: float, seed: int) -> None:
    found = strongly(strategy, epsilon, seed)
    assert not found.refuted
    if strategy == "dpsgd":
        assert found.overall.bound.epsilon >= 0.35 * found.overall.claimed


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_a_third_of_the_noise_is_noticed_at_every_claim(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    less_noise(monkeypatch, 1 / 3)
    assert strongly("dpsgd", epsilon, 0).overall.refuted
