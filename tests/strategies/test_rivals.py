"""The rivals of 2022 to 2026: what each is charged, recomputed by dp-accounting, and what is particular to them."""

from __future__ import annotations

import math
from typing import NamedTuple

import dp_accounting as dpa
import pytest
import torch
from dp_accounting.rdp import RdpAccountant

from fedfair.accounting.renyi import ORDERS
from fedfair.mechanisms.randomness import poisson
from simulations import run
from tests.strategies.oracle import gradients
from tests.strategies.test_contract import experiment, server, weights


class Charged(NamedTuple):
    """What a record of the smallest group goes through at each step: group sizes say at which rate."""

    rate: float
    counts: float | None = None


def by_dp_accounting(charged: Charged, noise: float, steps: int, delta: float) -> float:
    """Compose the steps, gradient and counts on one Poisson sample each, by dp-accounting alone."""
    releases = [dpa.GaussianDpEvent(noise)]
    if charged.counts is not None:
        releases.append(dpa.GaussianDpEvent(charged.counts))
    step = dpa.PoissonSampledDpEvent(charged.rate, dpa.ComposedDpEvent(releases))
    epsilon: float = RdpAccountant(list(ORDERS)).compose(step, steps).get_epsilon(delta)
    return epsilon


RECORDS = 332  # of the experiments' train part, 5 of which are eights
RIVALS = {"dpsgd-soft": Charged(32 / RECORDS), "dpsgd-auto": Charged(32 / RECORDS),
          "dpsgd-bounded": Charged(32 / RECORDS, 15.0), "dpsgd-is": Charged(3.2 / 5),
          "raco": Charged(32 / RECORDS, 15.0), "fermi": Charged(32 / RECORDS, 15.0),
          "raco-odds": Charged(32 / RECORDS, 15.0), "puffle": Charged(32 / RECORDS, 15.0),
          "dpsgd-rank": Charged(32 / RECORDS), "dpsgd-asc": Charged(2 * 32 / RECORDS, 15.0)}


@pytest.mark.parametrize("strategy", RIVALS)
def test_epsilon_is_what_dp_accounting_composes(strategy: str) -> None:
    made = experiment(strategy, noise_multiplier=1.5, steps=6, accountant="rdp")
    sizes = made.task.data().train.group.bincount().tolist()
    assert (sum(sizes), min(sizes)) == (RECORDS, 5)
    ledger = run(made).ledger
    assert ledger.epsilon() == pytest.approx(by_dp_accounting(RIVALS[strategy], 1.5, 6, 1e-4), rel=1e-3)


def test_a_bounded_clip_norm_follows_the_share_of_long_gradients_and_stops_at_its_bound() -> None:
    """Hazard 2: by the public size of a batch, whatever the counts."""
    strategy = server("dpsgd-bounded", clip_norm=2.0, options={"quantile": 0.7, "eta": 0.5, "min_bound": 0.25})
    strategy.learn(torch.tensor([16.0]), 32)
    assert strategy.clip_norm == pytest.approx(2 * math.exp(0.5 * (0.5 - 0.3)))  # type: ignore[attr-defined]
    for count, clip_norm in ((-1e9, 0.5), (1e9, 2e6), (-1e9, 0.5)):
        strategy.learn(torch.tensor([count]), 32)
        assert strategy.clip_norm == pytest.approx(clip_norm)  # type: ignore[attr-defined]
    assert strategy.query().threshold == strategy.rule().clip_norm  # type: ignore[union-attr, attr-defined]


@pytest.mark.usefixtures("keyed_by_seed")
def test_importance_sampling_equals_a_plain_loop_over_batches_of_every_groups_own_rate() -> None:
    made = experiment("dpsgd-is", noise_multiplier=0.0, dtype="float64", batch_size=100)
    data, model = made.task.data().train, made.task.build_model()
    for step in range(4):
        total: torch.Tensor | float = 0.0
        for k in range(10):
            members = data.records[data.group == k]
            rows = torch.isin(data.records, members[poisson(0, step, members, min(1.0, 10 / len(members)))])
            for row in gradients(model, data.x[rows], data.y[rows]):
                total = total + row * min(1.0, 1 / float(row.norm()))
        with torch.no_grad():
            now = torch.nn.utils.parameters_to_vector(model.parameters())
            torch.nn.utils.vector_to_parameters(now - 0.1 * total / 100, model.parameters())
    plain = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.allclose(weights(run(made)), plain, rtol=0, atol=1e-10)


def test_importance_sampling_charges_each_group_its_own_rate() -> None:
    made = experiment("dpsgd-is", noise_multiplier=1.5, steps=6, accountant="rdp")
    sizes, ledger = made.task.data().train.group.bincount().tolist(), run(made).ledger
    expected = [by_dp_accounting(Charged(3.2 / size), 1.5, 6, 1e-4) for size in sizes]
    assert list(ledger.guaranteed_by_group().values()) == pytest.approx(expected, rel=1e-3)
    assert ledger.epsilon() == pytest.approx(max(expected), rel=1e-3)
    assert max(expected) > 3 * min(expected)
