"""Balls in bins: each record is in one batch of every epoch, whoever holds it, and the ledger charges that."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from fedfair.accounting import epsilon
from fedfair.accounting.allocation import Allocation
from fedfair.mechanisms.randomness import balls_in_bins
from fedfair.node.guard import check_plan
from fedfair.node.node import ClientError, Node
from fedfair.node.policy import Refused
from simulations import Experiment, run
from simulations.audits.audit import audit
from simulations.audits.replayed import run_of
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.stacked import run_stacked
from strategies.server.existing_app import PrivateTraining
from tests.for_each import for_each
from tests.strategies.test_contract import experiment, server, weights

BINS = 10  # round(332 / 32): the steps of an epoch


def made(strategy: str = "dpsgd", **settings: Any) -> Experiment:
    return experiment(strategy, **{"sampling": "balls-in-bins", **settings})


def node_of(planned: Experiment) -> Node:
    task = planned.task
    return Node(task.clients_data(0, 1), task.build_model(), task.device)


def test_places_are_uniform_and_those_of_each_record_alone() -> None:
    records = torch.arange(60_000)
    places = balls_in_bins(3, 0, records, 7)
    assert chisquare(torch.bincount(places, minlength=7).numpy()).pvalue > 1e-4
    assert torch.equal(balls_in_bins(3, 0, records[5::9], 7), places[5::9])
    together = Counter(zip(places.tolist(), balls_in_bins(3, 1, records, 7).tolist(), strict=True))
    assert chisquare([*together.values()]).pvalue > 1e-4  # another epoch's places are independent
    assert len(together) == 49
    assert chisquare(torch.bincount(balls_in_bins(None, 0, records, 7)).numpy()).pvalue > 1e-4
    assert not torch.equal(*(balls_in_bins(None, 0, records, 7) for _ in range(2)))


@for_each("randomness", ["seeded", "system"])
def test_every_record_is_in_one_batch_of_every_epoch(randomness: str) -> None:
    strategy = server("dpsgd", sampling="balls-in-bins", steps=2 * BINS, randomness=randomness)
    node = node_of(made())
    batches = [node._rows(strategy.plan(step)).tolist() for step in range(2 * BINS)]
    everyone = list(range(len(node.clients.together.train)))
    for epoch in (batches[:BINS], batches[BINS:]):
        assert sorted(chain(*epoch)) == everyone
    assert batches[:BINS] != batches[BINS:]
    assert len({*map(len, batches)}) > 2  # their sizes vary


def test_a_batch_of_the_operating_system_is_the_same_in_all_exchanges_of_a_round() -> None:
    plan, node = server("dpsgd", sampling="balls-in-bins", randomness="system").plan(0), node_of(made())
    assert torch.equal(node._rows(plan), node._rows(plan))


def test_a_node_that_lost_an_epochs_places_draws_no_others_in_its_middle() -> None:
    strategy = server("dpsgd", sampling="balls-in-bins", randomness="system")
    first, second, third = map(strategy.plan, range(3))
    node = node_of(made())
    node._rows(first)
    node._rows(second)
    with pytest.raises(ClientError, match="no longer knows which records were in the epoch's steps before"):
        node_of(made())._rows(third)


@for_each("strategy", ["dpsgd", "dpsgd-f", "dpsgd-f-quantile"])
def test_the_ledger_charges_whole_epochs_and_the_begun_one(strategy: str) -> None:
    result = run(made(strategy, steps=2 * BINS + 3))
    noise = result.ledger.log.entries[0].event.guaranteed(0).multiplier
    assert result.ledger.epsilon() == epsilon(
        {Allocation(BINS, BINS, noise): 2, Allocation(BINS, 3, noise): 1}, 1e-4)
    assert noise == (1.0 if strategy == "dpsgd" else pytest.approx(1 / (1 + 1e-2) ** 0.5))
    assert result.ledger.guarantee == "simulated"


def test_epsilon_is_proved_where_the_operating_system_draws() -> None:
    ledger = run(made(randomness="system")).ledger
    assert ledger.guarantee == "proved"
    assert "a Gaussian of balls in bins" in ledger.reason


@for_each("strategy", ["dpsgd", "dpsgd-f"])
def test_noise_is_found_for_a_target_and_is_less_than_poissons(strategy: str) -> None:
    ours, poissons = (run(made(strategy, steps=25, target_epsilon=2.0, sampling=sampling))
                      for sampling in ("balls-in-bins", "poisson"))
    assert 1.99 < ours.ledger.epsilon() <= 2.0
    of_sum = [result.ledger.log.entries[0].event.multipliers[0] for result in (ours, poissons)]
    assert of_sum[0] < of_sum[1]


def test_an_epoch_is_so_many_steps_and_sums_are_divided_by_the_batch_that_is_expected() -> None:
    strategy = server("dpsgd", sampling="balls-in-bins", steps=None, epochs=2.5)
    assert (strategy.rounds, strategy.rounds_per_epoch, strategy.rates()) == (25, BINS, (1 / BINS,) * 10)
    assert strategy.divisor() == strategy.expected_batch() == 332 / BINS
    whole = server("dpsgd", sampling="balls-in-bins", batch_size=256, sampling_rate=1.0)
    assert (whole.steps_of_epoch, whole.rates()) == (1, (1.0,) * 10)


def test_without_noise_and_clipping_a_model_is_that_of_a_plain_loop() -> None:
    planned = made("sgd", steps=2 * BINS, dtype="float64")
    train, model = planned.task.data().train, planned.task.build_model()
    key = server("sgd", sampling="balls-in-bins", steps=2 * BINS, dtype="float64").key
    for step in range(2 * BINS):
        mine = balls_in_bins(key, step // BINS, train.records, BINS) == step % BINS
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(train.x[mine]), train.y[mine], reduction="sum").backward()
        for p in model.parameters():
            assert p.grad is not None
            p.data -= 0.1 * p.grad / (332 / BINS)
    plain = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(weights(run(planned)), plain, rtol=0, atol=1e-12)


def test_it_makes_no_difference_which_client_or_node_holds_a_record() -> None:
    settings = {"steps": BINS, "dtype": "float64", "noise_multiplier": 0.0}
    by_group, by_site = (weights(run(made(**settings), nodes=nodes)) for nodes in (1, 3))
    assert torch.allclose(by_group, by_site, rtol=0, atol=1e-12)


def test_stacked_runs_end_with_the_weights_of_runs_alone() -> None:
    planned = [made(seed=seed, steps=BINS + 2) for seed in (0, 1)]
    stacked = run_stacked(planned)
    assert stacked is not None
    for result, alone in zip(stacked, planned, strict=True):
        assert torch.allclose(weights(result), weights(run(alone)), rtol=0, atol=1e-5)
        assert result.ledger.epsilon() == run(alone).ledger.epsilon()


def interrupted(planned: Experiment, folder: Path) -> Checkpoint:
    """Run, stopped in the middle of an epoch, and return the checkpoint."""
    def stop(done: int, rounds: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(folder / "out", planned.settings(), 2)
    with pytest.raises(KeyboardInterrupt):
        run(planned, checkpoint=checkpoint, progress=stop)
    return checkpoint


def test_a_seeded_run_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    planned = made(steps=6)
    again, whole = run(planned, checkpoint=interrupted(planned, tmp_path)), run(planned)
    assert torch.equal(weights(again), weights(whole))
    assert again.ledger.epsilon() == whole.ledger.epsilon()


def test_a_run_of_the_operating_systems_noise_does_not_go_on(tmp_path: Path) -> None:
    planned = made(steps=6, randomness="system")
    checkpoint = interrupted(planned, tmp_path)
    with pytest.raises(ValueError, match="balls in bins cannot be released again"):
        run(planned, checkpoint=checkpoint)


@pytest.mark.parametrize(("strategy", "settings", "why"), [
    ("dpsgd", {"sync": "epoch"}, 'sync is "epoch"'),
    ("dpsgd", {"trust": "distributed"}, 'trust is "distributed"'),
    ("dpsgd", {"trust": "local"}, 'trust is "local"'),
    ("dpsgd", {"dropouts": 1}, "dropouts is 1"),
    ("dpsgd-f", {"group_epsilon": 3.0}, "group_epsilon is 3"),
    *((name, {}, "this strategy is ") for name in (
        "dpsgd-is", "dpsgd-asc", "dpsgd-rank", "gs-dp-sgd", "raco", "fermi", "puffle", "naive", "moments")),
    *((name, {}, "") for name in ("dp-fedavg", "fedavg", "fair-dp"))])
def test_what_is_not_accounted_for_is_refused_before_anything_is_released(
        strategy: str, settings: dict[str, Any], why: str) -> None:
    sync = {} if "sync" in settings or strategy in ("dp-fedavg", "fedavg") else {"sync": "step"}
    with pytest.raises(ValueError, match=f'sampling is "balls-in-bins", but .*{why}.*for which it is not accounted'):
        server(strategy, sampling="balls-in-bins", **sync, **settings)


def test_audits_nodes_with_a_policy_and_existing_apps_refuse_it() -> None:
    with pytest.raises(ValueError, match="an audit puts canaries into Poisson samples, but sampling is"):
        audit(made())
    with pytest.raises(ValueError, match="a replay counts Poisson samples, but sampling is"):
        run_of({"strategy": "dpsgd", "sampling": "balls-in-bins"})
    with pytest.raises(ValueError, match="sampling"):
        PrivateTraining(None, ["a", "b"], sampling="balls-in-bins")  # type: ignore[arg-type]
    plan = server("dpsgd", sampling="balls-in-bins", randomness="system").plan(0)
    assert json.loads(plan.to_json())["bins"] == BINS
    with pytest.raises(Refused, match="the round is of balls in bins, which its ledger does not account for"):
        check_plan(None, plan.to_json())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whose epochs a node does not account for by itself"):
        plan.own_event(clients=1)
