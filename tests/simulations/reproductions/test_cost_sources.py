"""Where the cost of privacy comes from: every combination of its sources, and each source's part of the whole."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.fairness.metrics import ALL
from simulations import Experiment, run
from simulations.reproductions.cost_sources import choose, cost_sources, costs, findings, parts
from simulations.reproductions.cost_study import SOURCES, combinations_of, load, named, plan, settings_of
from simulations.reproductions.request import Request
from tests.for_each import for_each

TOML = """
datasets = ["digits"]
target_epsilon = 8.0
clip_norm = 0.5
batch_size = 64
steps = 2
times_records = 4
times_steps = 2
learning_rates = [0.1, 1.0]
seeds = 2
choosing_seeds = 1
[settings]
model = "logistic"
delta = 1e-5
accountant = "rdp"
[quick]
text = "One learning rate."
learning_rates = [1.0]
"""
EVERY = combinations_of(SOURCES)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(TOML)
    return tmp_path / "study.toml"


def of_costs(values: list[float]) -> pd.DataFrame:
    """Costs of all combinations of one seed, that of none first."""
    return pd.DataFrame([dict(zip(EVERY, values, strict=True))])


COSTS = st.lists(st.floats(-1, 1), min_size=len(EVERY) - 1, max_size=len(EVERY) - 1).map(lambda costs: [0.0, *costs])


@given(COSTS)
def test_parts_are_means_over_all_orders_of_what_a_source_adds(values: list[float]) -> None:
    cost = dict(zip(EVERY, values, strict=True))
    added = dict.fromkeys(SOURCES, 0.0)
    for order in itertools.permutations(SOURCES):
        for place, source in enumerate(order):
            added[source] += (cost[named(order[:place + 1])] - cost[named(order[:place])]) / math.factorial(4)
    found = parts(of_costs(values)).iloc[0]
    assert found[list(SOURCES)].to_dict() == pytest.approx(added, abs=1e-12)
    assert found[list(SOURCES)].sum() == pytest.approx(found["together"], abs=1e-12)


def test_a_cost_is_the_accuracy_that_the_same_seed_has_more_without_privacy() -> None:
    rows = [{"dataset": "d", "group": group, "seed": seed, "combination": name, "accuracy": 0.9 - seed / 10 - cost}
            for group in ("a", ALL) for seed in (0, 1) for name, cost in (("noise", 0.2), ("none", 0.0))]
    found = costs(pd.DataFrame(rows))
    assert found["noise"].tolist() == pytest.approx([0.2] * 4)
    assert found["none"].tolist() == [0.0] * 4


def test_the_mean_of_all_on_the_validation_part_chooses_the_learning_rate() -> None:
    rows = [{"dataset": "d", "combination": "noise", "group": group, "seed": seed, "learning_rate": rate,
             "valid": valid, "accuracy": 1 - valid}
            for group in ("a", ALL)
            for seed, rate, valid in ((0, 1.0, 0.9), (1, 1.0, 0.5), (0, 3.0, 0.8), (1, 3.0, 0.7))]
    assert choose(pd.DataFrame(rows)) == {("d", "noise"): 3.0}


@for_each("sources", EVERY.values())
def test_noise_on_the_mean_gradient_is_that_of_dp_sgd_whatever_else_is_in_it(sources: tuple[str, ...]) -> None:
    study = load()
    made = settings_of(study, sources, noise=1.5, records=2_000)
    deviation = made["noise_multiplier"] * made["clip_norm"] / made["batch_size"]
    assert deviation == pytest.approx(1.5 * study.clip_norm / study.batch_size * ("noise" in sources))
    assert made["batch_size"] == (study.batch_size if "sampling" in sources else 2_000)
    assert made["steps"] == study.steps * (1 if "steps" in sources else study.times_steps)


def test_all_four_are_dp_sgd_at_the_target_epsilon_and_none_are_sgd(config: Path) -> None:
    study = load(file=config)
    made = {entry.combination: entry.experiment for entry in plan(study, "cpu", dict.fromkeys(
        (("digits", name) for name in EVERY), 1.0))}
    private = made[named(SOURCES)]
    same = Experiment(**{**private.settings(), "target_epsilon": study.target_epsilon, "noise_multiplier": 1.0})
    ((event, _),) = run(same).ledger.events.items()
    assert private.noise_multiplier == pytest.approx(event.multipliers[0])
    assert 0.99 * study.target_epsilon < run(private).ledger.epsilon() <= study.target_epsilon

    records = len(private.task.data().train)
    everything = {"batch_size": records, "seed": 3}  # no draw: batches of the two methods are the same
    free = run(Experiment(**{**made["none"].settings(), **everything})).model
    plain = run(Experiment(**{**made["none"].settings(), **everything, "strategy": "sgd"})).model
    for one, other in zip(free.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_study_is_run_once_and_says_what_it_found(config: Path, tmp_path: Path) -> None:
    said = cost_sources(tmp_path / "out", Request(quick=True), file=config)
    assert said.startswith("digits: at epsilon 8 accuracy falls by ")
    runs = pd.read_csv(tmp_path / "out" / "runs.csv", keep_default_na=False)
    assert runs.groupby("combination")["seed"].unique().map(sorted).to_dict() == {name: [0, 1] for name in EVERY}
    shares = pd.read_csv(tmp_path / "out" / "parts.csv", index_col=["dataset", "group", "seed"])
    assert shares[list(SOURCES)].sum(axis=1).tolist() == pytest.approx(shares["together"].tolist(), abs=1e-9)
    page = (tmp_path / "out" / "README.md").read_text()
    assert said in page
    assert f"| {named(SOURCES)} | 1 (edge) |" in page
    assert "<svg" in (tmp_path / "out" / "digits.svg").read_text()
    assert cost_sources(tmp_path / "out", Request(quick=True), file=config,
                        on_round=lambda *_: pytest.fail("a run was made again")) == said


def test_a_source_is_named_only_where_its_part_can_be_told_from_0_after_all_looks() -> None:
    index = pd.MultiIndex.from_product([["d"], ["a", "b", ALL], range(4)], names=["dataset", "group", "seed"])
    shares = pd.DataFrame(dict.fromkeys((*SOURCES, "together"), 0.0), index)
    for group, seed in itertools.product("ab", range(4)):
        shares.loc[("d", group, seed), ["noise", "together"]] = (0.02 + seed / 1e3) * (group == "b")
        shares.loc[("d", group, seed), "clipping"] = (0.02 + (seed - 1.5) / 100) * (group == "b")  # told alone: p = .05
    assert "b loses +0.0215 ± 0.0021 more than a, of which noise makes +0.0215 ± 0.0021 (p = 0.0" in next(
        findings(load(), shares))
    shares["noise"] = 0.0
    assert "no source of that can be told from 0" in next(findings(load(), shares))
