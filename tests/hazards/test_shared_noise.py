"""Attacks on noise that two runs share: the difference of two published models is then what the noise should hide.

Adapted from an attack on an earlier version, in which a run's noise followed from its seed alone. Here the attacker
does not know the seed, only that it is one, and the settings, which every result folder holds.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfair.datasets import Parts
from fedfair.gradients.layer_gradients import flat
from fedfair.mechanisms.randomness import stream
from fedfair.protocol import task as tasks
from simulations import Experiment, run
from simulations.results.result import Result
from strategies import find_strategy

CLIP, LR = 0.5, 1.0
MADE = Experiment(model="logistic", strategy="dpsgd", steps=1, delta=1e-5, eval_every=1000, learning_rate=LR,
                  clip_norm=CLIP, seed=987654321987, dtype="float64")
RECORDS = len(MADE.task.data().train)
FULL = MADE.model_copy(update={"batch_size": RECORDS})  # so that batches hide nothing
START = flat({name: p.detach() for name, p in MADE.task.build_model().named_parameters()})


def sent(result: Result) -> Tensor:
    """Return the noisy sum of a run's only step, read off the published model."""
    made = result.experiment
    return (START - flat({name: p.detach() for name, p in result.model.named_parameters()})) * (
        made.batch_size / made.learning_rate)


def changed(**settings: Any) -> Tensor:
    return sent(run(FULL.model_copy(update=settings)))


def error_of_two_budgets() -> float:
    """Solve for the sum behind two releases at two budgets, whose noises are alike but for their length; relative."""
    first, other = (run(FULL.model_copy(update={"target_epsilon": epsilon})) for epsilon in (1.0, 0.5))
    a, b = (next(iter(result.ledger.events)).multipliers[0] for result in (first, other))  # public
    recovered, exact = (b * sent(first) - a * sent(other)) / (b - a), changed(noise_multiplier=0.0)
    return float((recovered - exact).norm() / exact.norm())


def error_of_two_settings(name: str, values: tuple[Any, Any]) -> float:
    """Take the difference of two releases for that of the two sums: how wrong is it, in lengths of one noise."""
    noisy = [changed(**{name: value, "noise_multiplier": 3.0}) for value in values]
    exact = [changed(**{name: value, "noise_multiplier": 0.0}) for value in values]
    difference = (noisy[0] - noisy[1]) - (exact[0] - exact[1])
    return float(difference.norm()) / (3 * CLIP * len(START) ** 0.5)


SETTINGS = [("clip_norm", (CLIP, CLIP * (1 + 1e-9))), ("learning_rate", (LR, LR / 2)), ("weight_decay", (0.0, 1e-9)),
            ("eval_every", (1.0, 1.0 + 1e-9)), ("delta", (1e-5, 2e-5)), ("count_noise_multiplier", (None, 9.0)),
            ("batch_size", (RECORDS, RECORDS - 1))]


def test_two_budgets_of_one_seed_do_not_give_the_sum_away() -> None:
    assert error_of_two_budgets() > 1


@pytest.mark.usefixtures("keyed_by_seed")
def test_the_attack_by_two_budgets_would_succeed_with_a_bare_seed() -> None:
    assert error_of_two_budgets() < 1e-9


@pytest.mark.parametrize(("name", "values"), SETTINGS[:3] + SETTINGS[4:7])
def test_two_settings_of_one_seed_share_no_noise(name: str, values: tuple[Any, Any]) -> None:
    assert error_of_two_settings(name, values) == pytest.approx(2**0.5, rel=0.15)


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize(("name", "values"), SETTINGS)
def test_they_would_with_a_bare_seed(name: str, values: tuple[Any, Any]) -> None:
    assert error_of_two_settings(name, values) < 0.1


def without_one_record(parts: Parts) -> Parts:
    """Return the data with a training record that is replaced by another: the numbers of records stay the same."""
    return replace(parts, train=parts.train.take(torch.tensor([1, *range(1, len(parts.train))])))


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_one_record_changed_in_a_second_run_of_one_seed_is_seen_which_is_why_a_seeded_run_is_simulated(
        randomness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are in no key, since a key that depends on them would tell of them."""
    made = FULL.model_copy(update={"randomness": randomness, "noise_multiplier": 3.0})
    first = run(made)
    data = tasks.prepared_data
    monkeypatch.setattr(tasks, "prepared_data", lambda *given: without_one_record(data(*given)))
    second = run(made)
    moved = float((sent(first) - sent(second)).norm())
    if randomness == "seeded":
        assert moved <= 2 * CLIP * (1 + 1e-6)  # two clipped gradients, and no noise at all
        assert (first.ledger.guarantee, second.ledger.guarantee) == ("simulated", "simulated")
        assert "anyone who has it, or sees it run again on other records, can take the noise" in first.ledger.reason
    else:
        assert moved > 2 * CLIP * len(START) ** 0.5
        assert first.ledger.guarantee == "proved"


def test_whoever_has_the_folder_of_a_seeded_run_has_its_noise_and_the_folder_says_simulated(tmp_path: Path) -> None:
    result = run(FULL.model_copy(update={"noise_multiplier": 3.0}))
    result.save(tmp_path / "out")
    made = Experiment(**tomllib.loads((tmp_path / "out" / "config.toml").read_text()))
    key = find_strategy(made.strategy).key_of(made.task, made.training)
    assert key is not None
    drawn = torch.randn(len(START), generator=stream(key, "noise"), dtype=torch.float64)
    exact = changed(noise_multiplier=0.0)
    assert torch.allclose(sent(result) - 3 * CLIP * drawn, exact, rtol=0, atol=1e-6)
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert ledger["guarantee"] == "simulated"
    assert "seed" in ledger["guarantee_because"]
