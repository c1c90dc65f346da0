"""What every strategy must do, whatever its mathematics."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedfair import client_app
from fedfair.models.published import MODELS, mlp
from fedfair.node.node import ClientError
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from simulations.results.result import Result
from strategies import STRATEGIES, find_strategy
from strategies.server.population import Population
from strategies.server.replies.requests import population
from strategies.server.strategy import Strategy
from tests.strategies.two_groups import two_groups


def made_by(variant: str) -> str:
    """Return the strategy of a variant, "STRATEGY: WORD", or of a strategy itself."""
    return variant.split(":")[0]


VARIANTS: dict[str, dict[str, Any]] = {
    "dpsgd-f: authors": {"bounds": "authors"}, "dpsgd-f: printed": {"bounds": "printed"},
    "dpsgd-f: floored": {"bounds": "floored"}, "dpsgd-f: capped": {"max_bound": 1.5},
    "dpsgd-f: base": {"noise_at": "base"}, "dpsgd-f: weighted": {"weighting": "clip-norms", "max_bound": 1.5},
    "dpsgd-f-quantile: low": {"quantile": 0.2, "eta": 1.0, "max_bound": 2.0},
    "dpsgd-global-adapt: bounded": {"bound": 5.0, "min_bound": 4.5},
    "dpsgd-global-adapt: at least C0": {"bound": 5.0, "min_bound": "clip-norm"}, "fair-dp: late": {"late_share": 0.5},
    "dpsgd-bounded: moving": {"eta": 1.0, "min_bound": 1.0}}
ALL = [*STRATEGIES, *VARIANTS]
WITHOUT_PRIVACY = ("sgd", "fedavg", "direction-error", "magnitude-error")
PRIVATE = [name for name in ALL if name not in WITHOUT_PRIVACY]
MODES = [(name, sync) for name in ALL for sync in STRATEGIES[made_by(name)].modes
         if (name, sync) != ("dpsgd-f: base", "epoch")]  # which is refused
PRIVATE_MODES = [(name, sync) for name, sync in MODES if name in PRIVATE]
OPTIONS: dict[str, dict[str, Any]] = {
    "dpsgd-global": {"bound": 5.0}, "dpsgd-global-adapt": {"bound": 5.0}, "fair-dp": {"late_share": 0.0},
    "dp-fedavg": {"server_learning_rate": 0.1}, "fedavg": {"server_learning_rate": 0.1}, **VARIANTS}
LINEAR = {"features": "bounded", "model": "linear", "hidden": ()}
SETTINGS: dict[str, dict[str, Any]] = {"moments": LINEAR, "moments-of-participants": LINEAR}
ONE_ROUND = ("moments", "moments-of-participants")
OWN_EXCHANGE = ("moments", "moments-of-participants", "raco", "raco-odds", "fermi", "puffle", "dpsgd-asc", "dpsgd-rank",
                "scaffold")
"""Methods whose sums are none of gradients or updates, so that no canary can be put into them."""


def experiment(strategy: str, **settings: Any) -> Experiment:
    """Describe a short run of a strategy, or of one of its `VARIANTS`."""
    data = two_groups() if strategy == "fairlens" else {"imbalance": "8:5"}
    sync = find_strategy(made_by(strategy)).modes[0]
    return Experiment(**{"strategy": made_by(strategy), "sync": sync, "split": (0.2, 0.0, 0.8), **data,
                         "hidden": (12,), "learning_rate": 0.1, "clip_norm": 1.0, "steps": 4, "batch_size": 32,
                         "noise_multiplier": 1.0, "options": OPTIONS.get(strategy, {}), "delta": 1e-4,
                         **{**settings, **SETTINGS.get(strategy, {})}})


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def server(strategy: str, **settings: Any) -> Strategy:
    made = experiment(strategy, **settings)
    return find_strategy(made.strategy)(made.task, made.training, population(LocalGrid(client_app.app, 1), made.task))


def test_no_steps_return_the_initial_model_and_spend_nothing() -> None:
    for strategy, sync in MODES:
        made = experiment(strategy, steps=0, sync=sync)
        result = run(made)
        initial = torch.cat([p.detach().flatten() for p in made.task.build_model().parameters()])
        assert torch.equal(weights(result), initial), (strategy, sync)
        assert result.ledger.epsilon() == 0, (strategy, sync)
        assert not result.metrics.empty, (strategy, sync)


@pytest.mark.parametrize(("strategy", "sync"), [("dpsgd-f", "step"), ("dpsgd-f", "epoch"), ("dp-fedavg", "epoch")])
def test_frozen_parameters_stay_as_they_were_built(strategy: str, sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_frozen(*asked: Any) -> nn.Module:
        model = mlp(*asked)
        next(model.parameters()).requires_grad_(False)
        return model

    monkeypatch.setitem(MODELS._values, "half frozen", half_frozen)
    made = experiment(strategy, sync=sync, model="half frozen")
    pairs = zip(run(made, nodes=2).model.parameters(), made.task.build_model().parameters(), strict=True)
    assert [torch.equal(after, before) for after, before in pairs] == [True, False, False, False]


@pytest.mark.parametrize(("epochs", "batch", "records", "rounds"), [(30, 3, 49, 490), (30, 10, 41, 123),
                                                                    (0.5, 3, 49, 8)])
def test_an_epoch_is_as_many_steps_as_meet_every_record_once(epochs: float, batch: int, records: int, rounds: int
                                                             ) -> None:
    """int(epochs N / b), also where N / b has no exact floating-point value."""
    made = experiment("dpsgd", steps=None, epochs=epochs, batch_size=batch)
    population_ = Population(("a",), ((records,),), (0,), ("0", "1"))
    assert find_strategy("dpsgd")(made.task, made.training, population_).rounds == rounds


@pytest.mark.parametrize(("every", "rounds"), [(1, [12, 23, 34, 44]), (1.5, [17, 34, 44]), (100, [44])])
def test_held_out_parts_are_measured_at_the_end_of_so_many_epochs_and_all_parts_in_the_end(every: float,
                                                                                          rounds: list[int]) -> None:
    """An epoch of 359 records is 11.2 rounds; four are 44. Gradient norms are measured at the end alone."""
    made = experiment("sgd", steps=None, epochs=4, imbalance="8:32", eval_every=every, split=(0.2, 0.1, 0.7))
    assert len(made.task.data().train) == 359
    metrics = run(made).metrics
    measured = metrics[metrics["split"] != "rule"].groupby(["split", "metric"])["round"].unique().map(list)
    for split in ("train", "valid", "test"):
        assert measured[split, "accuracy"] == (rounds if split != "train" else [44])
        assert measured[split, "gradient_norm"] == [44]


def test_an_epoch_that_ends_with_a_round_is_measured_then(tmp_path: Path) -> None:
    """Twenty-three epochs with 23 of 25 records in a batch are 25 rounds, though 25 / 23 is no binary fraction."""
    file = tmp_path / "own.csv"
    file.write_text("x,group,label\n" + "".join(f"{i},{'ab'[i % 2]},{i // 2 % 2}\n" for i in range(42)))
    made = Experiment(csv=str(file), label="label", group="group", strategy="sgd", model="logistic",
                      split=(0.5, 0.0, 0.5), batch_size=23, epochs=24, eval_every=23)
    assert len(made.task.data().train) == 25
    assert run(made).metrics.query("split == 'test'")["round"].unique().tolist() == [25, 26]


def test_a_part_without_records_has_no_metrics() -> None:
    assert set(run(experiment("sgd")).metrics["split"]) == {"train", "test"}


def test_a_file_that_changes_while_a_run_goes_on_ends_it(tmp_path: Path) -> None:
    """Its other records would be sampled at rates that were planned for those that it had."""
    file = tmp_path / "own.csv"
    file.write_text("x,label,group\n" + "".join(f"{i % 7},{i % 2},{'ab'[i % 3 // 2]}\n" for i in range(90)))
    made = Experiment(strategy="dpsgd", csv=str(file), label="label", group="group", model="logistic", steps=6,
                      batch_size=16)

    def change(done: int, rounds: int) -> None:
        if done == 3:
            os.utime(file, ns=(1, 1))

    with pytest.raises(ClientError, match=r"own\.csv was changed while the run went on, .* leave the file alone"):
        run(made, progress=change)
    assert run(made).ledger.guarantee == "nominal"  # its numbers are scaled by the records


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_every_step_that_ran_is_in_the_ledger_and_more_nodes_than_clients_change_nothing(strategy: str, sync: str
                                                                                        ) -> None:
    made = experiment(strategy, sync=sync, dtype="float64")
    result = run(made)
    assert torch.allclose(weights(result), weights(run(made, nodes=13)), rtol=0, atol=1e-12)
    ledger, data = result.ledger, made.task.clients_data()
    one_release_a_round = sync == "step" or ledger.protects == "participant"
    rounds = 1 if strategy in ONE_ROUND else 4
    expected = rounds if one_release_a_round else sum(4 * max(1, len(parts.train) // 32) for parts in data.values())
    assert sum(ledger.events.values()) == expected
    assert (ledger.guarantee, math.isinf(ledger.epsilon())) == (
        ("none", True) if strategy in WITHOUT_PRIVACY
        else ("nominal" if strategy in ("fairlens", "puffle", "dpsgd-f: base") else "simulated", False))


@pytest.mark.parametrize(("strategy", "sync"), [case for case in PRIVATE_MODES if case[0] != "dpsgd-f: base"])
def test_the_target_epsilon_is_met_with_count_queries_included(strategy: str, sync: str) -> None:
    ledger = run(experiment(strategy, sync=sync, target_epsilon=5.0, accountant="rdp")).ledger
    assert 4.9 < ledger.epsilon() <= 5.0
    by_group = ledger.guaranteed_by_group()
    assert max(by_group.values()) <= 5.0
    assert all(spent <= by_group[name] + 1e-9 for name, spent in ledger.epsilon_by_group().items())
    if made_by(strategy) in ("gs-dp-sgd", "fair-dp"):
        assert min(by_group.values()) > 4.9


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_empty_and_tiny_batches_are_batches(strategy: str, sync: str) -> None:
    few = {"split": (0.1, 0.0, 0.9), "batch_size": 1, "steps": 1 if sync == "epoch" else 6}
    result = run(experiment(strategy, sync=sync, **few))
    assert bool(weights(result).isfinite().all())


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_a_client_whose_gradients_explode_is_named_and_ends_the_run(sync: str) -> None:
    with pytest.raises(ClientError, match=r"client \d"):
        run(experiment("sgd", learning_rate=1e20, weight_decay=10.0, sync=sync, steps=20))


def test_participants_whose_updates_explode_add_nothing_and_do_not_end_the_run() -> None:
    """Hazards 9 and 31: a NaN must not pass the clip, and an error would reveal it."""
    assert bool(weights(run(experiment("dp-fedavg", learning_rate=1e30, batch_size=2))).isfinite().all())


def test_a_batch_larger_than_the_data_is_refused() -> None:
    for strategy in ALL:
        with pytest.raises(ValueError, match="batch_size is 5000, but there are only"):
            run(experiment(strategy, batch_size=5000))


@pytest.mark.parametrize("strategy", ["dpsgd-f", "dpsgd-f-quantile", "dpsgd-global-adapt", "naive", "dpsgd-bounded"])
def test_a_target_that_the_counts_alone_exceed_is_refused(strategy: str) -> None:
    with pytest.raises(ValueError, match=r"target_epsilon 0\.1 cannot be reached: .* noise on the counts"):
        run(experiment(strategy, target_epsilon=0.1, count_noise_multiplier=0.5, accountant="rdp"))


@pytest.mark.parametrize("strategy", ["dpsgd-f", "dpsgd-f-quantile", "dpsgd-global-adapt", "naive", "dpsgd-bounded"])
def test_counts_without_noise_are_no_default_and_end_every_guarantee(strategy: str) -> None:
    ledger = run(experiment(strategy, count_noise_multiplier=0.0)).ledger
    assert (ledger.guarantee, ledger.epsilon()) == ("none", math.inf)
