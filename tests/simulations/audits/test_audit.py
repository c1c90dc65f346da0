"""Audits stay below what is proved, reach a fair part of it, and exceed it when a mistake is planted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner

from fedfair.accounting import Release, epsilon
from fedfair.auditing.bounds import lower_bound
from fedfair.datasets import DATASETS, GroupedDataset, Source
from fedfair.mechanisms import noise
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.noise import Trust
from fedfair.node import noisy_sums as host
from simulations import Experiment, run
from simulations.audits.audit import DEFAULTS, audit
from simulations.audits.audit_table import audit_table, audits, by_group
from simulations.audits.findings import Audit
from simulations.audits.membership import membership
from simulations.cli import app
from simulations.drawing.table import terminal
from strategies import STRATEGIES
from strategies.server import rounds as base
from tests.strategies.test_contract import OPTIONS, OWN_EXCHANGE, WITHOUT_PRIVACY, server
from tests.strategies.test_fairlens import CLIP, released
from tests.strategies.test_fairlens import model as fairlens_model
from tests.strategies.test_fairlens import records as fairlens_records

AUDITED = [name for name in STRATEGIES if STRATEGIES[name].nominal is None
           and name not in (*WITHOUT_PRIVACY, *OWN_EXCHANGE)]
ATTACKED = pytest.mark.parametrize(("strategy", "sync"), [
    ("dpsgd", "step"), ("dpsgd", "epoch"), ("dp-fedavg", "epoch")])
MODES = [(name, sync) for name in AUDITED for sync in STRATEGIES[name].modes]
QUICK = {"split": (0.1, 0.0, 0.9), "hidden": (60,), "steps": 8, "batch_size": 90, "target_epsilon": None,
         "noise_multiplier": 4.0}


def experiment(strategy: str = "dpsgd", **settings: Any) -> Experiment:
    return Experiment(**{**DEFAULTS, **QUICK, "strategy": strategy, "options": OPTIONS.get(strategy, {}), **settings})


@pytest.fixture(autouse=True)
def one_thread(two_threads: None) -> None:
    """Limit PyTorch to one thread: tensors are small here."""
    torch.set_num_threads(1)


def less_noise(patch: pytest.MonkeyPatch, by: float) -> None:
    """Plant a mistake: the noise has a fraction of the deviation that the ledger charges."""

    def weak(kind: Any, values: Any, deviation: float, source: Any) -> dict[str, Tensor]:
        return noise.add_noise(kind, values, deviation * by, source)

    for module in (base, host):
        patch.setattr(module, "add_noise", weak)


@pytest.mark.parametrize("attack", ["canaries", "membership"])
def test_several_audits_say_how_far_they_are(attack: str) -> None:
    told: list[tuple[int, int, str, int, int]] = []
    audits("dpsgd", attack, range(2), QUICK, canaries=400, on_round=lambda *now: told.append(now))
    assert told == [(done, 2, f"dpsgd, seed {done}", step, 8) for done in range(2) for step in range(1, 9)]


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_what_is_found_stays_below_what_is_claimed(strategy: str, sync: str) -> None:
    found = audit(experiment(strategy, sync=sync), canaries=4000)
    assert found.guarantee == "simulated"
    assert not found.refuted
    assert found.overall.bound.epsilon < found.overall.claimed
    assert all(0 <= finding.by_curve < finding.claimed for finding in found.findings)
    assert [finding.group for finding in found.findings] == ["all", *map(str, range(10))]


@pytest.mark.parametrize("trust", list(Trust))
@ATTACKED
def test_every_trust_is_attacked_where_its_noise_is(strategy: str, sync: str, trust: Trust) -> None:
    """Under local trust at the client, so that the other clients' noise does not help."""
    found = audit(experiment(strategy, trust=trust, sync=sync), canaries=4000).overall
    assert 0.2 * found.claimed < found.bound.epsilon < found.claimed
    assert 0.2 * found.claimed < found.by_curve < found.claimed


@ATTACKED
def test_a_quarter_of_the_noise_is_noticed(strategy: str, sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    less_noise(monkeypatch, 1 / 4)
    found = audit(experiment(strategy, sync=sync, noise_multiplier=8.0), canaries=4000)
    assert found.refuted
    assert found.overall.by_curve > found.overall.claimed


def test_without_noise_there_is_nothing_to_refute() -> None:
    found = audit(experiment("sgd"), canaries=400)
    assert (found.guarantee, found.refuted) == ("none", False)
    assert found.overall.bound.correct == found.overall.bound.guesses


def test_what_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain SGD, but optimizer is 'adam'"):
        audit(experiment("gs-dp-sgd", optimizer="adam"))
    with pytest.raises(ValueError, match=r"the server's have a momentum of 0\.5: take 0"):
        audit(experiment(momentum=0.5))
    with pytest.raises(ValueError, match=r"canaries is 20000, but the model has \d+ parameters"):
        audit(experiment())
    with pytest.raises(ValueError, match=r"the server's have a momentum of 0\.9: take 0"):
        audit(experiment("dp-fedavg", options={"server_momentum": 0.9}))
    pd.DataFrame({"x": range(90), "y": [0, 1] * 45, "g": [0, 0, 1] * 30}).to_csv(tmp_path / "two.csv", index=False)
    with pytest.raises(ValueError, match="'fairlens' has no sums of gradients or updates into which canaries could"):
        audit(Experiment(csv=str(tmp_path / "two.csv"), label="y", group="g", strategy="fairlens", batch_size=20))


def test_members_are_found_in_a_model_that_knows_its_records_by_heart(tmp_path: Path) -> None:
    """Labels are random, so a model can only get them right by memory. A private model remembers little."""
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


def test_members_are_told_from_records_that_the_same_lot_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from a test part that the source published: here it is of another year, with other labels."""

    def load(group: str | None) -> GroupedDataset:
        draws = torch.Generator().manual_seed(0)
        x, group_ = torch.randn(2000, 5, generator=draws), torch.randint(2, (2000,), generator=draws)
        published = torch.tensor([0, 2]).repeat_interleave(1000)
        other = (published == 2) & (torch.rand(2000, generator=draws) < 0.3)
        return GroupedDataset(x, ((x[:, 0] > 0) ^ other).long(), group_, ("a", "b"), 2, published=published)

    monkeypatch.setitem(DATASETS._values, "another year", Source(load, {}))
    made = Experiment(dataset="another year", strategy="dpsgd", model="logistic", steps=100, batch_size=100,
                      learning_rate=2.0, target_epsilon=0.1, delta=1e-5, split=(0.6, 0.2, 0.2), clip_norm=1.0)
    assert not membership(run(made)).refuted
    with pytest.raises(ValueError, match="no validation part was split off at random: give it a share in split"):
        membership(run(made.model_copy(update={"split": (0.8, 0.0, 0.2)})))


def test_participants_are_not_told_by_their_records_which_is_said_before_anything_runs() -> None:
    with pytest.raises(ValueError, match=r"protects a whole participant, .* take the attack canaries"):
        audits("dp-fedavg", "membership", [0], {"batch_size": 10**9})


def test_the_command_prints_saves_and_says_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"--set={key}={json.dumps(value)}" for key, value in QUICK.items()
                if key not in ("target_epsilon", "noise_multiplier")]
    command = ["audit", "--canaries", "4000", "--out", str(tmp_path / "audit.json"), *settings]
    good = CliRunner().invoke(app, [*command, "--epsilon", "3"], env={"COLUMNS": "100"})
    assert good.exit_code == 0, good.output
    assert "REFUTED" not in good.output
    saved = json.loads((tmp_path / "audit.json").read_text())["audits"][0]
    assert (saved["attack"], saved["refuted"], len(saved["findings"])) == ("white box", False, 11)
    less_noise(monkeypatch, 1 / 8)
    bad = CliRunner().invoke(app, [*command, "--epsilon", "3"], env={"COLUMNS": "100"})
    assert bad.exit_code == 1
    assert "REFUTED" in bad.output


def strongly(strategy: str, epsilon: float, seed: int, canaries: int = 20_000, **settings: Any) -> Audit:
    return audit(Experiment(**{**DEFAULTS, "strategy": strategy, "target_epsilon": epsilon, "seed": seed,
                               "options": OPTIONS.get(strategy, {}), **settings}), canaries)


def test_what_is_found_of_each_group_is_drawn_beside_what_the_ledger_says(tmp_path: Path) -> None:
    made = [audit(experiment("dpsgd-f", seed=seed, imbalance="8:9"), 400) for seed in (0, 1)]
    drawn = by_group(made)
    for finding in made[0].findings:
        assert f">{finding.group}<" in drawn
    claimed = np.mean([each.findings[0].claimed for each in made])
    assert f">{claimed:,.4f}<" in drawn
    assert len({finding.spent for finding in made[0].findings}) > 1  # groups spend what their own clip norms cost
    arguments = ["audit", *(part for name, value in QUICK.items() if value is not None
                            for part in ("--set", f"{name}={list(value) if isinstance(value, tuple) else value}")),
                 "--canaries", "200", "--picture", str(tmp_path / "audit.svg")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "guaranteed" in (tmp_path / "audit.svg").read_text()
    refused = CliRunner().invoke(app, [*arguments, "--attack", "outlier"])
    assert refused.exit_code == 2
    assert "take the attack canaries or membership" in " ".join(refused.output.split())
    free = audit(experiment(noise_multiplier=0.0), 200)
    with pytest.raises(ValueError, match="an epsilon is infinite, which no bar is"):
        by_group([free])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", AUDITED)
def test_bounds_hold_at_full_strength_and_dpsgd_reaches_35_percent_of_its_claim(strategy: str) -> None:
    """One seed; `python -m simulations.benchmarks.audits` runs five."""
    for claim in (1.0, 3.0, 8.0) if strategy == "dpsgd" else (3.0,):
        found = strongly(strategy, claim, 0)
        assert not found.refuted
        if strategy == "dpsgd":
            assert found.overall.bound.epsilon >= 0.35 * found.overall.claimed


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "left", "settings"), [
    (1.0, 1 / 3, {}), (3.0, 1 / 3, {}), (8.0, 1 / 4, {"canaries": 60_000, "hidden": (900,), "delta": 1e-9})])
def test_a_third_of_the_noise_or_less_is_noticed_at_every_claim(
        epsilon: float, left: float, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """To refute 8 takes thousands of right guesses without an error, and a delta that cannot explain them."""
    less_noise(monkeypatch, left)
    assert strongly("dpsgd", epsilon, 0, **settings).overall.refuted


def seen(shift: float, deviation: float) -> float:
    """Score 4,000 noisy sums as an attacker who knows all other records; in half of them one record adds `shift`."""
    draws = np.random.default_rng(0)
    present = draws.random(4000) < 0.5
    noisy = shift * present + deviation * draws.normal(size=4000)
    return lower_bound((noisy * shift - shift**2 / 2) / deviation**2, present, 1e-5).epsilon


def test_noise_at_the_base_leaks_more_than_its_multiplier_says_and_no_more_than_the_ledger_says() -> None:
    """Esipova et al.'s listing of DPSGD-F: noise at C0, clip norms above it. Only one group exceeds C0."""
    strategy = server("dpsgd-f", options={"noise_at": "base"}, noise_multiplier=2.0)
    strategy.learn(torch.tensor([[1.0] + [0.0] * 9, [0.0] + [3.0] * 9]), 32)
    rule = strategy.rule()
    largest, noise = sensitivity(rule, 10), strategy.sum_noise(rule)
    found = seen(largest, noise * largest)
    assert found > epsilon({Release(1.0, 2.0): 1}, 1e-5)
    charged, *_ = strategy._planned(noise)
    assert found < epsilon({Release(1.0, charged): 1}, 1e-5)


@pytest.mark.parametrize("noise_multiplier", [2.0, 4.0])
def test_fairlens_leaks_more_than_its_nominal_epsilon(noise_multiplier: float) -> None:
    """In half of many batches of 31 records the only one of its group is missing."""
    data, net = fairlens_records(4, [0] * 30 + [1], scale=3.0), fairlens_model()
    change = released(data, net) - released(data.take(torch.arange(30)), net)
    assert seen(float(change.norm()), noise_multiplier * CLIP) > epsilon({Release(1.0, noise_multiplier): 1}, 1e-5)


@pytest.mark.parametrize("confidence", [math.nan, 0.0, 1.0])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence is .*: it must lie strictly between 0 and 1"):
        audit(Experiment(**DEFAULTS), confidence=confidence)


def test_an_attack_far_below_the_ideal_one_is_called_too_weak() -> None:
    """The black box finds nothing in a model that spent an epsilon of 3: this is no sign of privacy."""
    strong = audit(experiment(noise_multiplier=1.0), canaries=4000).overall
    weak = membership(run(experiment(noise_multiplier=1.0, split=(0.5, 0.0, 0.5))))
    assert not strong.too_weak
    assert strong.bound.epsilon > strong.ideal / 4 > 0
    assert weak.overall.too_weak
    saved = weak.to_dict()["findings"][0]
    assert (saved["too_weak"], saved["refuted"]) == (True, False)
    console = Console(width=200, record=True)
    console.print(terminal(audit_table([weak])))
    assert "too weak" in console.export_text()
