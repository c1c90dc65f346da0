"""Whatever the bounds, no group is charged or loses more than its budget, and a run with a budget says so."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedfair.accounting import Event, Ledger, Release
from fedfair.accounting.events import joint_multiplier
from fedfair.mechanisms.clipping import ClipRule, PerGroup, Reweighted
from simulations import run
from simulations.results.ledger_table import notes
from strategies.server.group_budget import GroupBudget
from tests.fedfair.accounting.oracle import direct
from tests.strategies.test_contract import experiment, server, weights

DELTA = 1e-5
bounds = st.lists(st.floats(0.1, 50), min_size=3, max_size=3)


def spend(budget: GroupBudget, rules: list[ClipRule], noise: float, counts: float | None) -> Ledger:
    ledger = Ledger(("a", "b", "c"), DELTA, accountant="rdp", budget=budget.filter)
    for rule in rules:
        allowed, present = budget.within(rule, noise)
        sensitivities = allowed.group_sensitivities(3)
        spent = tuple(present * max(sensitivities) / own for own in sensitivities)
        ledger.record(Event(budget.rates, (noise,) * 3, spent, counts))
    return ledger


@settings(deadline=None, max_examples=10)
@given(st.lists(bounds, min_size=1, max_size=12), st.lists(st.floats(0.5, 6), min_size=3, max_size=3),
       st.floats(0.4, 2), st.booleans(), st.booleans())
def test_no_sequence_of_bounds_costs_a_group_more_than_its_budget(sequence: list[list[float]], epsilons: list[float],
                                                                  noise: float, counting: bool, reweighted: bool
                                                                  ) -> None:
    counts = 40.0 if counting else None
    budget = GroupBudget(epsilons, DELTA, (0.05, 0.05, 0.2), len(sequence), counts)
    rules: list[ClipRule] = [Reweighted((2.0, 2.0, 3.0), tuple(b)) if reweighted else PerGroup(tuple(b))
                             for b in sequence]
    ledger = spend(budget, rules, noise, counts)
    for place, spent in enumerate(ledger.epsilon_by_group().values()):
        assert spent <= epsilons[place] * (1 + 1e-9)
        releases = Counter(event.spent(place) for event in ledger.events.elements())
        assert spent == pytest.approx(direct(releases, delta=DELTA), rel=5e-3)
    for guaranteed, epsilon in zip(ledger.guaranteed_by_group().values(), epsilons, strict=True):
        assert guaranteed <= epsilon * (1 + 1e-9)


def test_a_generous_budget_changes_nothing_and_a_tight_one_lowers_bounds_but_never_the_noise() -> None:
    rule = PerGroup((1.0, 4.0, 2.0))
    same, noise = GroupBudget((50.0,) * 3, DELTA, (0.05,) * 3, 10, 40.0).within(rule, 1.0)
    assert (same, noise) == (rule, 1.0)
    lower, noise = GroupBudget((0.4,) * 3, DELTA, (0.05,) * 3, 10, 40.0).within(rule, 1.0)
    assert lower.group_sensitivities(3)[0] == 1.0 > lower.group_sensitivities(3)[1] / 4
    assert noise * max(lower.group_sensitivities(3)) == pytest.approx(4.0)


def moment(order: int, rate: float, counts: float, noises: tuple[float, float], charges: tuple[float, float]) -> float:
    """Compute `E exp((a - 1)(L - r))` of one step in closed form: at most 1 if r may be charged.

    The record is not in the data. A noisy count of the batch is released; if it is above 1 the gradient sum has the
    first of the noise multipliers `noises` and r is the first of `charges`, otherwise the second of both.
    """
    total = 0.0
    for j in range(order + 1):
        weight = math.comb(order, j) * rate**j * (1 - rate) ** (order - j) * math.exp(j * (j - 1) / 2 / counts**2)
        above = norm.sf((1 - j) / counts)
        for share, noise, charge in zip((above, 1 - above), noises, charges, strict=True):
            total += weight * share * math.exp(j * (j - 1) / 2 / noise**2 - (order - 1) * charge)
    return total


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_bounds_that_counts_of_the_same_batch_choose_are_charged_what_was_certain_before(rate: float) -> None:
    """If the step charged the noise that was used, as it may for bounds chosen by earlier steps, it would lose more
    than its charge.

    Within the budget, no step does, and what one step does not use changes nothing of the next.
    """
    counts, generous, tiny = 2.0, PerGroup((50.0, 50.0)), PerGroup((50.0, 1e-3))
    first = GroupBudget((4.0,) * 2, DELTA, (rate, rate), 10, counts, counts_first=True)
    other = GroupBudget((4.0,) * 2, DELTA, (rate, rate), 10, counts, counts_first=True)
    for _ in range(10):
        before = list(first.spent)
        allowed, noise = first.within(generous, 0.01)
        other.within(tiny, 0.01)
        assert (first.least, first.spent) == (other.least, other.spent)
        noises = (noise, noise * 5e4)
        assert noises[0] == pytest.approx(first.least[0])
        assert allowed.group_sensitivities(2)[1] > 1e-3
        charge = first.spent[1] - before[1]
        order = first.filters[1].order
        realised = tuple(first.filters[1].cost(Release(rate, joint_multiplier(s, counts))) for s in noises)
        assert moment(order, rate, counts, noises, (realised[0], realised[1])) > 1.001
        assert moment(order, rate, counts, noises, (charge, charge)) <= 1
    assert max(first.spent) <= first.filters[0].divergence


def test_what_is_not_used_is_kept_for_later() -> None:
    budget = GroupBudget((1.0,) * 2, DELTA, (0.05,) * 2, 10, None)
    first = budget.within(PerGroup((50.0, 1.0)), 0.5)[0].group_sensitivities(2)
    for _ in range(5):
        budget.within(PerGroup((50.0, 1e-3)), 0.5)
    later = budget.within(PerGroup((50.0, 50.0)), 0.5)[0].group_sensitivities(2)
    assert later[1] > 1.02 * later[0]
    assert later[0] == pytest.approx(first[0], rel=0.02)


def test_bounds_that_are_always_too_large_use_up_the_whole_budget() -> None:
    budget = GroupBudget((1.0,) * 2, DELTA, (0.05,) * 2, 10, None)
    for _ in range(10):
        budget.within(PerGroup((50.0, 50.0)), 0.01)
    divergence = budget.filters[0].divergence
    assert 0.98 * divergence < min(budget.spent) <= max(budget.spent) <= divergence


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_run_keeps_every_group_within_its_budget(accountant: str) -> None:
    settings_ = {"noise_multiplier": 0.8, "steps": 12, "count_noise_multiplier": 20.0, "accountant": accountant}
    free, kept = (run(experiment("dpsgd-f", group_epsilon=budget, **settings_)) for budget in (None, 1.5))
    assert max(free.ledger.epsilon_by_group().values()) > 1.5
    assert max(kept.ledger.epsilon_by_group().values()) <= 1.5
    assert kept.ledger.epsilon() <= 1.5 < free.ledger.epsilon()
    assert kept.ledger.to_dict()["budget"] is not None
    assert bool(weights(kept).isfinite().all())


def test_odometers_of_methods_that_count_first_say_no_less_than_what_is_guaranteed() -> None:
    settings_ = {"noise_multiplier": 0.8, "steps": 12, "count_noise_multiplier": 20.0, "accountant": "rdp"}
    first, together = (run(experiment(name, **settings_)).ledger for name in ("dpsgd-f", "dpsgd-f-quantile"))
    assert first.epsilon_by_group() != first.guaranteed_by_group()
    assert all(odometer >= first.guaranteed_by_group()[name] for name, odometer in first.odometer_by_group().items())
    assert max(together.odometer_by_group().values()) > min(together.odometer_by_group().values())


@pytest.mark.parametrize("name", ["dpsgd-f", "naive", "gs-dp-sgd"])
def test_a_table_keeps_each_group_within_a_budget_of_its_own(name: str) -> None:
    settings_ = {"noise_multiplier": 0.8, "steps": 12, "sync": "step", "count_noise_multiplier": 30.0}
    groups = experiment(name).task.data().train.names
    budgets = {group: 1.0 + 0.25 * place for place, group in enumerate(groups)}
    free, kept = (run(experiment(name, group_epsilon=budget, **settings_)) for budget in (None, budgets))
    read = Ledger.from_dict(json.loads(json.dumps(kept.ledger.to_dict())))
    for group, most in budgets.items():
        assert kept.ledger.guaranteed_by_group()[group] <= most < free.ledger.guaranteed_by_group()[group]
        assert kept.ledger.epsilon_by_group()[group] <= most
        assert f"group {group} is kept within Renyi divergence" in " ".join(notes(kept.ledger, DELTA))
    assert read.guaranteed_by_group() == kept.ledger.guaranteed_by_group()
    assert max(kept.ledger.guaranteed_by_group().values()) > 1.0


def test_a_table_of_equal_budgets_is_the_number() -> None:
    groups = experiment("dpsgd-f").task.data().train.names
    first, second = (run(experiment("dpsgd-f", group_epsilon=budget)) for budget in (2.0, dict.fromkeys(groups, 2.0)))
    assert torch.equal(weights(first), weights(second))
    assert first.ledger.to_dict() == second.ledger.to_dict()


@pytest.mark.parametrize("name", ["gs-dp-sgd", "fair-dp", "naive"])
def test_every_method_with_bounds_by_group_keeps_the_budget(name: str) -> None:
    settings_ = {"noise_multiplier": 0.8, "steps": 12, "sync": "step"}
    free, kept = (run(experiment(name, group_epsilon=budget, **settings_)).ledger for budget in (None, 2.0))
    assert max(kept.guaranteed_by_group().values()) <= 2 < max(free.guaranteed_by_group().values())


def test_the_noise_of_a_run_within_a_budget_is_that_of_the_rule_before_it_was_capped() -> None:
    """What is charged is what is there: with zero gradients the update is the noise alone."""
    strategy = server("dpsgd-f", group_epsilon=0.5, steps=12, count_noise_multiplier=40.0, noise_multiplier=0.8)
    assert strategy.budget is not None
    rule = PerGroup((1.0,) * 9 + (3.0,))
    capped, noise = strategy.budget.within(rule, 0.8)
    assert noise * max(capped.group_sensitivities(10)) == pytest.approx(0.8 * 3.0)
    plan = replace(strategy.plan(0), rule=capped, noise_multiplier=noise,
                   planned_multipliers=strategy._planned(noise))
    assert set(plan.event().multipliers) == {0.8}
    assert min(plan.event().spent_multipliers) == pytest.approx(noise)


def test_a_group_budget_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="the clip rule 'flat' treats all groups alike"):
        server("dpsgd", group_epsilon=1.0)
    with pytest.raises(ValueError, match='group_epsilon limits single steps, but sync is "epoch"'):
        server("dpsgd-f", group_epsilon=1.0, sync="epoch")
    with pytest.raises(ValueError, match=r"group_epsilon 0\.5 is too small: the counts alone"):
        server("dpsgd-f", group_epsilon=0.5, steps=50, count_noise_multiplier=0.5)
    with pytest.raises(ValueError, match=r"group_epsilon lowers bounds .* but noise_multiplier is 0"):
        server("dpsgd-f", group_epsilon=4.0, noise_multiplier=0.0, count_noise_multiplier=100.0)


@given(st.floats(0.3, 0.8), st.booleans())
def test_a_budget_is_refused_at_the_start_or_leaves_something_for_every_step(epsilon: float, first: bool) -> None:
    """Between .4912 and .4936 the counts alone fit, but not with any noise of the filter's grid."""
    try:
        budget = GroupBudget((epsilon,) * 2, DELTA, (0.1, 0.1), 100, 8.0, first)
    except ValueError:
        assert epsilon < 0.5
        return
    for _ in range(100):
        allowed, _ = budget.within(PerGroup((1.0, 2.0)), 1.0)
        assert min(allowed.group_sensitivities(2)) > 0


def test_a_run_without_steps_has_a_budget_that_nothing_is_taken_from() -> None:
    assert run(experiment("dpsgd-f", group_epsilon=2.0, steps=0)).ledger.epsilon() == 0


def test_the_same_seed_gives_the_same_run_within_a_budget() -> None:
    first, again = (run(experiment("dpsgd-f", group_epsilon=2.0)) for _ in range(2))
    assert torch.equal(weights(first), weights(again))
    assert math.isfinite(first.ledger.epsilon())
