"""Clients that train by themselves for an epoch, record by record private: what is added to noisy gradients is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from flwr.serverapp.strategy import FedAvg

from fedfair.client_app import node_of
from simulations import Experiment, run
from simulations.audits.audit import audit
from simulations.results.result import Result
from strategies import STRATEGIES
from strategies.scaffold import Scaffold
from strategies.server.existing_app import PrivateTraining
from tests.for_each import for_each
from tests.strategies.oracle import local_epochs
from tests.strategies.test_contract import server

LOCAL = [name for name in STRATEGIES if "epoch" in STRATEGIES[name].modes and STRATEGIES[name].protects == "record"]

BY_GROUP = ("gs-dp-sgd", "fair-dp")
OPTIONS: dict[str, dict[str, Any]] = {"dpsgd-global": {"bound": 5.0}, "dpsgd-global-adapt": {"bound": 5.0},
                                      "fair-dp": {"max_norm": 1e6, "late_share": 0.0}}


def experiment(strategy: str = "dpsgd", **settings: Any) -> Experiment:
    """Describe a run in local epochs of four sites, whose labels differ."""
    return Experiment(**{"strategy": strategy, "sync": "epoch", "split": (0.1, 0.0, 0.9), "partition": "site",
                         "clients": 4, "alpha": 0.5, "hidden": (6,), "learning_rate": 0.4, "clip_norm": 0.5,
                         "noise_multiplier": 0.8, "steps": 3, "batch_size": 8, "dtype": "float64", "delta": 1e-3,
                         **settings})


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def plain(made: Experiment, **more: Any) -> torch.Tensor:
    """Return where the plain loop ends, with the batches and the noise of the run."""
    clients = [(parts.train.x, parts.train.y, parts.train.records) for parts in made.task.clients_data().values()]
    key = STRATEGIES[made.strategy].key_of(made.task, made.training)
    assert key is not None
    return local_epochs(made.task.build_model(), clients, key=key, rounds=3, batch=8, lr=0.4, clip=0.5, sigma=0.8,
                        **more)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1000.0])
def test_the_proximal_term_is_added_to_clipped_and_noisy_gradients_as_in_the_paper(mu: float) -> None:
    """Li et al. 2020, Equation 2; each step ends where the term's gradient there, mu (w - w_0), is part of it."""
    made = experiment(proximal=mu)
    for nodes in (1, 4):
        assert torch.allclose(weights(run(made, nodes=nodes)), plain(made, proximal=mu), rtol=0, atol=1e-10), nodes


def test_the_proximal_term_costs_nothing_and_holds_every_method_that_trains_in_local_epochs() -> None:
    assert {"dpsgd", "dpsgd-f", "gs-dp-sgd", "sgd"} <= {*LOCAL}
    for strategy in (name for name in LOCAL if name != "scaffold"):
        by_group = {"partition": "group", "clients": None, "alpha": None} if strategy in BY_GROUP else {}
        free, held = (run(experiment(strategy, proximal=mu, noise_multiplier=0.01, steps=1, **by_group,
                                     options=OPTIONS.get(strategy, {}))) for mu in (0.0, 1e6))
        start = torch.cat([p.detach().flatten() for p in held.experiment.task.build_model().parameters()])
        assert held.ledger.events == free.ledger.events, strategy
        assert float((weights(held) - start).abs().max()) < 1e-3 * float((weights(free) - start).abs().max()), strategy


@for_each(("name", "value"), [("proximal", 0.1), ("local_epochs", 2)])
@for_each("strategy", ["dpsgd", "moments", "naive", "fermi"])
def test_settings_of_local_epochs_without_local_steps_are_refused(strategy: str, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f'{name} is {value:g}, .* sync is "step", .* or leave {name} out'):
        server(strategy, sync="step", **{name: value})


@pytest.mark.parametrize("strategy", ["dpsgd", "scaffold"])
def test_several_local_epochs_in_a_round_are_those_of_the_plain_loop(strategy: str) -> None:
    made = experiment(strategy, local_epochs=3)
    expected = plain(made, controls=strategy == "scaffold", epochs=3)
    assert torch.allclose(weights(run(made, nodes=2)), expected, rtol=0, atol=1e-10)


def test_as_many_epochs_cost_as_much_in_fewer_rounds_with_as_much_noise() -> None:
    """Averages between them are post-processing."""
    often, seldom = (server("dpsgd", sync="epoch", steps=None, epochs=6, local_epochs=each, target_epsilon=2.0)
                     for each in (1, 3))
    assert (often.rounds, seldom.rounds) == (6, 2)
    assert often.noise == seldom.noise
    one, three = (run(experiment(steps=None, epochs=6, local_epochs=each)).ledger for each in (1, 3))
    assert one.events == three.events


@for_each("epochs", [0, -1, 1.5, True, "2"])
def test_a_round_of_no_number_of_local_epochs_is_refused(epochs: Any) -> None:
    """A server that asks for fewer than none would be charged less than none."""
    local = server("dpsgd", sync="epoch").local_training()
    assert local is not None
    with pytest.raises(ValueError, match=r"epochs of the round is .*: give a whole number from 1"):
        replace(local, epochs=epochs)


def test_local_epochs_of_participants_are_an_option_of_their_methods() -> None:
    with pytest.raises(ValueError, match=r"local_epochs is 2, .*: give options\.local_epochs"):
        server("dp-fedavg", local_epochs=2)


def test_an_audit_that_reads_noise_off_plain_steps_refuses_a_proximal_term() -> None:
    with pytest.raises(ValueError, match=r"those of clients have a proximal term of 0\.1: take 0"):
        audit(experiment(proximal=0.1))


@pytest.mark.parametrize("server_lr", [1.0, 0.6])
def test_scaffold_is_the_papers_algorithm_over_clipped_and_noisy_steps(server_lr: float) -> None:
    """Karimireddy et al. 2020, Algorithm 1, option II. The sites lie on one node, or on one each."""
    made = experiment("scaffold", options={"server_learning_rate": server_lr})
    expected = plain(made, controls=True, server_lr=server_lr)
    assert not torch.allclose(expected, plain(made, server_lr=server_lr), rtol=0, atol=1e-3)
    for nodes in (1, 4, 6):
        assert torch.allclose(weights(run(made, nodes=nodes)), expected, rtol=0, atol=1e-10), nodes


def test_a_site_without_records_has_a_control_of_zero() -> None:
    made = experiment("scaffold", clients=12, alpha=0.001)
    assert min(len(parts.train) for parts in made.task.clients_data().values()) == 0
    assert torch.allclose(weights(run(made)), plain(made, controls=True), rtol=0, atol=1e-10)


def test_scaffold_costs_what_local_epochs_cost() -> None:
    corrected, averaged = run(experiment("scaffold")).ledger, run(experiment("dpsgd")).ledger
    assert corrected.events == averaged.events
    assert corrected.by_observer() == averaged.by_observer()
    assert set(corrected.by_observer().values()) == {corrected.epsilon()}  # the server sees each client's weights


def test_a_client_that_misses_a_round_keeps_its_control_and_the_others_step_by_their_shares() -> None:
    """Of three sites two answer, when controls are there already: c_i - c + (x - y_i) / (K_i lr) for these alone."""
    method = server("scaffold", partition="site", clients=3, alpha=None, dropouts=1, dtype="float64")
    assert isinstance(method, Scaffold)
    local, shares = method.local_training(), method.client_weights()
    assert local is not None
    start = {name: torch.ones_like(own[0]) for name, own in method.controls.items()}
    for own in method.controls.values():
        for client, value in enumerate((0.5, -0.2, 0.9)):
            own[client] = value
    method.descent.hold(start, method.training)
    common = 0.5 * shares[0] - 0.2 * shares[1] + 0.9 * shares[2]
    ended = torch.tensor([0.9, 0.7, 0.0], dtype=torch.float64)  # the third is no answer
    sums = {name: ended.view(3, *[1] * value.dim()).expand(3, *value.shape) for name, value in start.items()}
    moved = method.averaged(sums, clients=[0, 1])
    length = (0.1 * shares[0] + 0.3 * shares[1]) / (shares[0] + shares[1])
    first, second, _ = (0.1 * local.epoch(client).steps for client in range(3))  # K_i lr
    renewed = [0.5 - common + 0.1 / first, -0.2 - common + 0.3 / second, 0.9]
    for name, value in moved.items():
        assert torch.allclose(value, torch.full_like(value, 1 - length)), name
        for client, expected in enumerate(renewed):
            own = method.controls[name][client]
            assert torch.allclose(own, torch.full_like(own, expected)), (name, client)


@for_each(("settings", "said"), [
    ({"optimizer": "adam"}, "optimizer is 'adam' with momentum 0: take sgd and 0"),
    ({"momentum": 0.5}, r"momentum 0\.5: take sgd and 0"),
    ({"proximal": 0.1}, r"proximal is 0\.1, but scaffold corrects the drift of clients by itself"),
    ({"trust": "distributed"}, "the server sees sums alone, .* take trust = \"local\"")])
def test_what_scaffold_cannot_have_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        server("scaffold", **settings)


def test_an_app_of_ones_own_whose_clients_know_no_corrections_is_refused_scaffold() -> None:
    with pytest.raises(ValueError, match=r"scaffold does not train in local epochs that .* an app's clients know"):
        PrivateTraining(FedAvg(), ("a", "b"), "scaffold", noise_multiplier=1.0)


def test_corrections_of_another_shape_are_refused() -> None:
    made = experiment("scaffold")
    node = node_of(made.task, 0, 1)
    method = server("scaffold")
    start = {name: value.detach() for name, value in made.task.build_model().named_parameters()}
    method.descent.hold(start, method.training)
    with pytest.raises(ValueError, match="the server's corrections are not of the shape of every client's weights"):
        node.corrected_epochs(start, method.plan(0), start)
