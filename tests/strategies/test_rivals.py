"""The rivals of 2022 to 2026: what each is charged, recomputed by dp-accounting, and what is particular to them."""

from __future__ import annotations

from typing import NamedTuple

import dp_accounting as dpa
import pytest
from dp_accounting.rdp import RdpAccountant

from fedfair.accounting.renyi import ORDERS
from simulations import run
from tests.strategies.test_contract import experiment


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
RIVALS = {"dpsgd-soft": Charged(32 / RECORDS), "dpsgd-auto": Charged(32 / RECORDS)}


@pytest.mark.parametrize("strategy", RIVALS)
def test_epsilon_is_what_dp_accounting_composes(strategy: str) -> None:
    made = experiment(strategy, noise_multiplier=1.5, steps=6, accountant="rdp")
    sizes = made.task.data().train.group.bincount().tolist()
    assert (sum(sizes), min(sizes)) == (RECORDS, 5)
    ledger = run(made).ledger
    assert ledger.epsilon() == pytest.approx(by_dp_accounting(RIVALS[strategy], 1.5, 6, 1e-4), rel=1e-3)
