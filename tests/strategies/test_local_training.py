"""Clients that train by themselves for an epoch, record by record private: what is added to noisy gradients is free."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simulations import Experiment, run
from simulations.audits.audit import audit
from simulations.results.result import Result
from strategies import STRATEGIES
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
    for strategy in LOCAL:
        by_group = {"partition": "group", "clients": None, "alpha": None} if strategy in BY_GROUP else {}
        free, held = (run(experiment(strategy, proximal=mu, noise_multiplier=0.01, steps=1, **by_group,
                                     options=OPTIONS.get(strategy, {}))) for mu in (0.0, 1e6))
        start = torch.cat([p.detach().flatten() for p in held.experiment.task.build_model().parameters()])
        assert held.ledger.events == free.ledger.events, strategy
        assert float((weights(held) - start).abs().max()) < 1e-3 * float((weights(free) - start).abs().max()), strategy


@for_each("strategy", ["dpsgd", "moments", "naive", "fermi"])
def test_a_proximal_term_without_local_steps_is_refused(strategy: str) -> None:
    with pytest.raises(ValueError, match=r'proximal is 0\.1, .* sync is "step", .* or leave proximal out'):
        server(strategy, sync="step", proximal=0.1)


def test_an_audit_that_reads_noise_off_plain_steps_refuses_a_proximal_term() -> None:
    with pytest.raises(ValueError, match=r"those of clients have a proximal term of 0\.1: take 0"):
        audit(experiment(proximal=0.1))
