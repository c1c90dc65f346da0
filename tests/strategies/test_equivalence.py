"""The federated run is the centralised algorithm, however the records are spread over clients and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
import torch

from simulations import Experiment, run
from simulations.results.result import Result
from tests.strategies import oracle_fairlens
from tests.strategies.oracle import train
from tests.strategies.two_groups import two_groups

OPTIONS: dict[str, dict[str, Any]] = {
    "dpsgd-global": {"bound": 3.0}, "dpsgd-global-adapt": {"bound": 3.0, "tau": 0.7, "eta": 0.1},
    "dpsgd-bounded": {"eta": 0.1}}
ON_DIGITS = ["sgd", "dpsgd", "dpsgd-f", "dpsgd-global", "dpsgd-global-adapt", "gs-dp-sgd", "naive", "fair-dp",
             "dpsgd-f-quantile", "dpsgd-soft", "dpsgd-auto", "dpsgd-bounded"]
STRATEGIES = [*ON_DIGITS, "fairlens", "dpsgd-is", "raco", "raco-odds", "fermi", "puffle", "dpsgd-asc"]


def experiment(strategy: str, **settings: Any) -> Experiment:
    data = two_groups() if strategy == "fairlens" else {"imbalance": "8:5"}
    return Experiment(**{"strategy": strategy, "sync": "step", "split": (0.15, 0.0, 0.85), **data,
                         "hidden": (12,), "learning_rate": 0.5, "clip_norm": 1.0, "steps": 5, "noise_multiplier": 0.0,
                         "options": OPTIONS.get(strategy, {}), "dtype": "float64", "delta": 1e-4, **settings})


def full_batch(strategy: str, **settings: Any) -> Experiment:
    made = experiment(strategy, **settings)
    return made.model_copy(update={"batch_size": len(made.task.data().train)})


SPREAD = ((1, "group", 1), (2, "group", 2), (2, "site", 1), (7, "site", 7), (7, "group", 1))
"""Numbers of clients, how records are dealt to them, and numbers of nodes."""


def refuse_another_result(made: Experiment, expected: torch.Tensor, tolerance: float,
                          spread: Iterable[tuple[int, str, int]] = SPREAD) -> None:
    """Fail if a run ends elsewhere, however its records are spread over clients and nodes."""
    for clients, partition, nodes in spread:
        found = weights(run(made.model_copy(update={"clients": clients, "partition": partition}), nodes=nodes))
        assert torch.allclose(found, expected, rtol=0, atol=tolerance), (clients, partition, nodes)


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


@pytest.mark.parametrize("strategy", ON_DIGITS)
def test_full_batches_without_noise_equal_a_plain_centralised_loop(strategy: str) -> None:
    for dtype, spread, tolerance in (("float64", SPREAD, 1e-10), ("float32", SPREAD[3:], 1e-5)):
        made = full_batch(strategy, dtype=dtype)
        data = made.task.data().train
        plain = train(strategy, made.task.build_model(), data.x, data.y, data.group, groups=10, steps=5, lr=0.5,
                      clip=1.0, bound=3.0, tau=0.7, eta=0.1)
        refuse_another_result(made, plain, tolerance, spread)


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_fairlens_equals_a_plain_centralised_loop_that_differentiates_the_penalty_itself(model: str) -> None:
    hidden = (6,) if model == "mlp" else ()
    made = full_batch("fairlens", model=model, hidden=hidden, clip_norm=0.4, options={"gamma1": 2.0, "gamma2": 0.5})
    data = made.task.data().train
    plain = oracle_fairlens.train(made.task.build_model(), data.x, data.y, data.group, steps=5, lr=0.5, clip=0.4,
                                  gamma1=2.0, gamma2=0.5)
    refuse_another_result(made, plain, 1e-10)


def test_momentum_adds_half_of_every_step_to_the_next() -> None:
    made = full_batch("sgd", momentum=0.5)
    data, model = made.task.data().train, made.task.build_model()
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(data.x), data.y)
        velocity = [0.5 * v + g for v, g in zip(velocity, torch.autograd.grad(loss, list(model.parameters())),
                                               strict=True)]
        with torch.no_grad():
            for parameter, v in zip(model.parameters(), velocity, strict=True):
                parameter -= 0.5 * v
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(weights(run(made)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_weight_decay_adds_a_share_of_the_weights_to_every_gradient(sync: str) -> None:
    """A local epoch of full batches, averaged by records, is one step over all of them."""
    made = full_batch("sgd", sync=sync, steps=2, weight_decay=0.3)
    data, model = made.task.data().train, made.task.build_model()
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(data.x), data.y)
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(model.parameters(), slopes, strict=True):
                parameter -= 0.5 * (slope + 0.3 * parameter)
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(weights(run(made)), expected, rtol=0, atol=1e-10)


def test_momentum_reaches_local_epochs() -> None:
    without, twice, halved = (weights(run(experiment("sgd", sync="epoch", steps=1, batch_size=b, momentum=momentum)))
                              for b, momentum in ((16, 0.0), (16, 0.5), (200, 0.5)))
    alone = weights(run(experiment("sgd", sync="epoch", steps=1, batch_size=200)))
    assert not torch.allclose(without, twice, rtol=0, atol=1e-6)
    assert torch.equal(alone, halved)  # one step: nothing to carry over


@pytest.mark.parametrize(("bounds", "weighted"), [("paper", False), ("authors", False), ("authors", True)])
def test_every_form_of_dpsgd_f_equals_its_plain_loop_where_clip_norms_differ(bounds: str, weighted: bool) -> None:
    options = {"bounds": bounds, "weighting": "clip-norms" if weighted else "none"}
    made = full_batch("dpsgd-f", clip_norm=2.4, learning_rate=5.0, options=options)
    data, result = made.task.data().train, run(made)
    plain = train("dpsgd-f", made.task.build_model(), data.x, data.y, data.group, groups=10, steps=5, lr=5.0, clip=2.4,
                  bound=3.0, tau=0.7, eta=0.1, bounds=bounds, weighted=weighted)
    used = result.metrics[result.metrics["metric"] == "clip_norms"]["value"]
    assert used.max() > 2 * used.min()
    assert torch.allclose(weights(result), plain, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_poisson_batches_and_noise_do_not_depend_on_the_number_of_clients(strategy: str) -> None:
    made = experiment(strategy, noise_multiplier=1.0, batch_size=16, steps=8)
    two, seven, mixed = (weights(run(made.model_copy(update={"clients": c, "partition": p, "alpha": a}), nodes=c))
                         for c, p, a in ((2, "group", None), (7, "site", None), (5, "site", 0.1)))
    assert torch.allclose(two, seven, rtol=0, atol=1e-10)
    assert torch.allclose(two, mixed, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sync", ["step", "epoch"])
@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd-f", "dpsgd-global-adapt"])
def test_a_site_may_have_no_record(strategy: str, sync: str) -> None:
    made = experiment(strategy, sync=sync, noise_multiplier=1.0, batch_size=8, steps=3, partition="site", clients=12,
                      alpha=0.001)
    held = made.task.clients_data()
    assert min(len(parts.train) for parts in held.values()) == 0
    assert weights(run(made)).isfinite().all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(strategy: str) -> None:
    made = experiment(strategy, noise_multiplier=1.0, batch_size=16, dtype="float32")
    first, again = weights(run(made)), weights(run(made))
    assert torch.equal(first, again)
    assert not torch.allclose(first, weights(run(made.model_copy(update={"seed": 1}))))


@pytest.mark.parametrize("strategy", ON_DIGITS)
def test_local_epochs_do_not_depend_on_the_nodes(strategy: str) -> None:
    made = experiment(strategy, sync="epoch", noise_multiplier=1.0, batch_size=8, steps=3)
    one, three = (weights(run(made, nodes=nodes)) for nodes in (1, 3))
    assert torch.allclose(one, three, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(("strategy", "sync"), [
    ("dpsgd-f", "step"), ("dpsgd-global-adapt", "epoch")])
def test_flowers_simulation_gives_the_weights_of_the_local_engine(strategy: str, sync: str) -> None:
    made = experiment(strategy, sync=sync, noise_multiplier=1.0, batch_size=16, steps=3)
    local, flower = run(made), run(made, engine="flower", nodes=2)
    assert torch.allclose(weights(local), weights(flower), rtol=0, atol=1e-10)
    assert local.ledger.to_dict() == flower.ledger.to_dict()
    pd.testing.assert_frame_equal(local.metrics, flower.metrics, rtol=1e-9)
