"""Runs together against the same runs one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from fedfair import client_app
from fedfair.node.node import ClientError
from fedfair.protocol import task_data
from simulations import Experiment, run
from simulations.audits.outlier import forget
from simulations.engines import stacked
from simulations.engines.local import LocalGrid
from simulations.engines.run import first_weights, rounds_of
from simulations.engines.stacked import Part, is_stackable, run_stacked, stacks
from simulations.plans.compare import compare, in_parallel
from simulations.results.result import Result
from strategies import COMBINATIONS, STRATEGIES
from tests.strategies.test_equivalence import OPTIONS, weights
from tests.strategies.two_groups import two_groups


def made(strategy: str, seed: int = 0, **settings: Any) -> Experiment:
    return Experiment(**{"strategy": strategy, "seed": seed, "steps": 6, "hidden": (8,), "batch_size": 40,
                         "learning_rate": 0.3, "delta": 1e-4, "dtype": "float64", "imbalance": "8:5",
                         "options": OPTIONS.get(strategy, {}), "accountant": "rdp", **settings})


ON_TWO_GROUPS: dict[str, Any] = {**two_groups(), "imbalance": None}


def assert_same(found: Result, expected: Result) -> None:
    """Fail unless two results of one experiment are the same up to rounding, and their ledgers to the bit."""
    assert found.experiment == expected.experiment
    tolerance = 1e-12 if found.experiment.dtype == "float64" else 1e-5
    torch.testing.assert_close(weights(found), weights(expected), rtol=0, atol=tolerance)
    pd.testing.assert_frame_equal(found.metrics, expected.metrics, rtol=0, atol=1e-6)
    assert found.ledger.log.to_dict() == expected.ledger.log.to_dict()


def stackable() -> list[str]:
    """Every published method that stacks by default."""
    return [name for name in (*STRATEGIES, *COMBINATIONS) if is_stackable(made(name, **ON_TWO_GROUPS))]


def test_every_method_that_stacks_ends_where_it_ends_alone() -> None:
    planned = [made(name, seed, **ON_TWO_GROUPS) for seed, name in enumerate(stackable())]
    assert len(planned) > 10
    for found, experiment in zip(run_stacked(planned) or [], planned, strict=True):
        assert_same(found, run(experiment))


@pytest.mark.parametrize("settings", [
    {"trust": "distributed", "clients": 3, "partition": "site"}, {"trust": "local", "clients": 2, "partition": "group"},
    {"momentum": 0.5, "average": 0.9, "eval_every": 0.5}, {"optimizer": "adam"}, {"noise": "discrete"},
    {"model": "logistic", "hidden": ()}, {"dtype": "float32"}, {"figures": "private", "figures_epsilon": 2.0},
    {**ON_TWO_GROUPS, "threshold": "by-group"}])
def test_runs_differ_in_method_seed_and_numbers_whatever_they_have_in_common(settings: dict[str, Any]) -> None:
    planned = [made("dpsgd", 0, **settings), made("dpsgd", 1, **{**settings, "clip_norm": 2.0, "noise_multiplier": 3}),
               made("dpsgd-f", 0, **{**settings, "learning_rate": 0.1, "batch_size": 60, "steps": 4})]
    assert stacks(planned) == [Part([0, 1, 2], stack=True)]
    for found, experiment in zip(run_stacked(planned) or [], planned, strict=True):
        assert_same(found, run(experiment))


@contextmanager
def some_records_are(value: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every seventh training record of a node have this value in all its features, in no other test."""
    usual = client_app.node_of

    def extreme(*given: Any) -> Any:
        """Return the node."""
        node = usual(*given)
        node.clients.together.train.x[::7] = value
        return node

    forget()
    monkeypatch.setattr(client_app, "node_of", extreme)
    try:
        yield
    finally:
        forget()


def test_a_record_whose_gradient_is_not_finite_is_left_out_as_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [made(name, seed, clip_norm=0.5, dtype="float32") for name in ("dpsgd", "dpsgd-f") for seed in (0, 1)]
    with some_records_are(3e38, monkeypatch):
        together = run_stacked(planned) or []
        for found, experiment in zip(together, planned, strict=True):
            assert_same(found, run(experiment))
            assert bool(weights(found).isfinite().all())


def test_a_run_that_bounds_nothing_names_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [made("sgd", seed, dtype="float32") for seed in (0, 1)]
    for made_by in (run_stacked, compare):
        with (some_records_are(float("nan"), monkeypatch),
              pytest.raises(ClientError, match="has a gradient that is not finite at step 0")):
            made_by(planned)


def test_what_asks_nodes_for_something_else_does_not_stack() -> None:
    alone = {"moments", "gs-dp-sgd", "dp-fedavg", "fairlens", "raco", "puffle", "fermi"}
    assert alone.isdisjoint(stackable())
    for settings in ({"sync": "epoch"}, {"randomness": "system"}, {"risk_every": 2}):
        assert not is_stackable(made("dpsgd", **settings))
    assert not is_stackable(made("dpsgd", clients=3, partition="site", dropouts=1))


def test_stacks_share_data_and_model_and_leave_something_for_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "MOST", 4)
    planned = [made(name, seed) for seed in range(3) for name in ("dpsgd", "sgd", "moments")]
    other = made("dpsgd", hidden=(9,))
    assert [part.places for part in stacks([*planned, other])] == [[0, 1, 3], [2], [4, 6, 7], [5], [8], [9]]
    parts = stacks([*planned, other], jobs=3)
    assert sorted(place for part in parts for place in part.places) == list(range(10))
    assert Part([9], stack=True) in parts
    assert Part([2]) in parts
    assert max(len(part.places) for part in parts) == 2


def test_which_runs_are_in_a_stack_moves_no_bit() -> None:
    planned = [made(name, seed, dtype="float32") for name in ("dpsgd", "dpsgd-f", "sgd") for seed in (0, 1)]
    together = run_stacked(planned) or []
    for found, experiment in zip(together, planned, strict=True):
        (alone,) = run_stacked([experiment]) or []
        assert torch.equal(weights(found), weights(alone))
        pd.testing.assert_frame_equal(found.metrics, alone.metrics, check_exact=True)
        assert found.ledger.log.to_dict() == alone.ledger.log.to_dict()


def test_runs_whose_records_are_too_many_or_whose_models_differ_are_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [made("dpsgd", seed, model="cnn", hidden=(2, 2), dtype="float32") for seed in (0, 1)]
    assert run_stacked(planned) is None
    assert [result.experiment for result in compare(planned)] == planned
    monkeypatch.setattr(stacked, "_MOST_BYTES", 1)
    assert run_stacked([made("dpsgd"), made("sgd")]) is None


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_comparison_stacks_by_itself_and_gives_results_in_its_order(jobs: int) -> None:
    planned = [made(name, seed) for name in ("dpsgd", "dpsgd-f") for seed in (0, 1)]
    planned.insert(2, made("dpsgd", sync="epoch", steps=None, epochs=1))
    seen: list[tuple[int, str]] = []
    results = (compare(planned, on_round=lambda done, of, name, *_: seen.append((done, name))) if jobs == 1 else
               in_parallel(planned, jobs=2))
    for found, experiment in zip(results, planned, strict=True):
        assert_same(found, run(experiment))
    assert jobs == 2 or (0, "4 runs together") in seen


def test_one_step_is_the_sum_of_the_clipped_gradients_of_each_run() -> None:
    experiment = made("dpsgd", noise_multiplier=0.0, steps=1)
    rounds = rounds_of(experiment, LocalGrid(client_app.app, 1), lambda *_: None)
    before, after = first_weights(rounds), (run_stacked([experiment, made("sgd", steps=1)]) or [])[0].model
    plan = replace(rounds.begin(0, before), noise_multiplier=0.0)
    sent = client_app.node_of(rounds.task, 0, 1).gradient_sum(before, plan).sums
    for name, value in after.named_parameters():
        torch.testing.assert_close(value.detach(), before[name] - 0.3 * sent[name] / 40, rtol=0, atol=1e-12)


def test_data_of_many_seeds_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr(task_data, "reduce_group", lambda parts, imbalance, seed: prepared.append(seed) or parts)
    task_data.forget()
    run_stacked([made(strategy, seed, steps=1) for strategy in ("sgd", "dpsgd")
                 for seed in range(6)])  # more than the latest four, which are kept anyway
    task_data.forget()
    assert sorted(prepared) == list(range(6))
