"""Adaptive sampling and clipping against a plain loop, and what each group is charged."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfair.mechanisms.randomness import poisson
from simulations import Experiment, run
from tests.strategies.oracle import gradients
from tests.strategies.test_contract import experiment as on_digits
from tests.strategies.test_contract import server, weights
from tests.strategies.test_rivals import Charged, by_dp_accounting

OPTIONS = {"eta": 2.0, "loss_bound": 3.0, "max_rate": 1.5}


def experiment(**settings: Any) -> Experiment:
    return on_digits("dpsgd-asc", **{"noise_multiplier": 0.0, "dtype": "float64", "batch_size": 100, "steps": 6,
                                     "clip_norm": 0.5, "options": OPTIONS, **settings})


def plain(model: nn.Module, data: Any, steps: int) -> tuple[Tensor, list[Tensor]]:
    """Return the parameters after some steps without noise, flattened, and the rates of each step."""
    sizes = data.group.bincount().double()
    even, shares, seen = 100 / float(sizes.sum()), sizes / sizes.sum(), []
    for step in range(steps):
        rates = torch.tensor([min(100 * float(shares[k]) / float(sizes[k]), 1.5 * even) for k in range(10)],
                             dtype=torch.float64)
        seen.append(rates)
        total: Tensor | float = 0.0
        losses = torch.zeros(10, dtype=torch.float64)
        for k in range(10):
            members = data.records[data.group == k]
            rows = torch.isin(data.records, members[poisson(0, step, members, float(rates[k]))])
            for x, y in zip(data.x[rows], data.y[rows], strict=True):
                g = gradients(model, x[None], y[None])[0]
                clip = 0.5 * min(1.0, even / float(rates[k]))
                total = total + g * min(1.0, clip / float(g.norm()))
                losses[k] += min(3.0, nn.functional.cross_entropy(model(x[None]), y[None]).item()) / 3
        shares = shares * torch.exp(2 * (losses / (rates * sizes)).clamp(0, 1))
        shares = 0.9 * shares / shares.sum() + 0.1 * sizes / sizes.sum()
        now = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(now - 0.1 * total / 100, model.parameters())
    return nn.utils.parameters_to_vector(model.parameters()).detach(), seen


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize(("clients", "nodes"), [(1, 1), (7, 3)])
def test_it_equals_a_plain_loop_over_batches_of_every_groups_own_rate(clients: int, nodes: int) -> None:
    made = experiment(partition="site", clients=clients, count_noise_multiplier=0.0)
    expected, rates = plain(made.task.build_model(), made.task.data().train, 6)
    assert float(rates[-1].max()) == pytest.approx(1.5 * 100 / 332)
    assert float(rates[-1].min()) < 0.9 * 100 / 332
    assert torch.allclose(weights(run(made, nodes=nodes)), expected, rtol=0, atol=1e-10)


def test_the_guarantee_is_for_the_largest_rate_and_the_reading_for_the_rates_that_were() -> None:
    """Both recomputed by dp-accounting from what the ledger's events say."""
    ledger = run(experiment(noise_multiplier=2.0, accountant="rdp")).ledger
    most, even = 1.5 * 100 / 332, 100 / 332
    assert ledger.epsilon() == pytest.approx(by_dp_accounting(Charged(most, 20.0), 2.0, 6, 1e-4), rel=1e-3)
    events = list(ledger.events)
    assert {rate for event in events for rate in event.rates} == {most}
    assert {event.multipliers for event in events} == {(2.0,) * 10}
    lower, higher = 0, 0
    for event in events:
        assert event.spent_rates is not None
        for rate, multiplier in zip(event.spent_rates, event.spent_multipliers, strict=True):
            assert rate <= most * (1 + 1e-12)
            assert multiplier == pytest.approx(2.0 * max(1.0, rate / even))
            lower, higher = lower + (rate < 0.99 * even), higher + (rate > 1.01 * even)
    assert min(lower, higher) > 0
    assert max(ledger.epsilon_by_group().values()) < ledger.epsilon()


def test_losses_of_any_sign_keep_every_group_in_the_batch_and_no_rate_above_the_cap() -> None:
    strategy = server("dpsgd-asc", options={"eta": 5.0, "max_rate": 3.0})
    even = 32 / strategy.population.records
    counts = torch.full((10,), -1e9)
    counts[8] = 1e9
    for _ in range(300):
        strategy.learn(counts, 32)
    rates = strategy.rates()
    assert rates[8] == pytest.approx(3 * even)
    assert min(rates) >= 0.1 * even * (1 - 1e-9)
    assert strategy.rule().group_sensitivities(10)[8] == pytest.approx(1 / 3)
    assert math.isclose(float(strategy.shares.sum()), 1)  # type: ignore[attr-defined]


def test_a_budget_by_group_is_refused() -> None:
    with pytest.raises(ValueError, match="dpsgd-asc changes sampling rates, which group_epsilon takes as fixed"):
        run(experiment(noise_multiplier=2.0, group_epsilon=3.0))
