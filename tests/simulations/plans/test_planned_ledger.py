"""What a run will have released is known before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from simulations import Experiment, run
from simulations.plans.planned_ledger import planned_ledger


@pytest.mark.parametrize("settings", [
    {"strategy": "sgd"}, {"strategy": "dpsgd", "target_epsilon": 4.0, "noise_multiplier": 1.0}, {"strategy": "dpsgd-f"},
    {"strategy": "dpsgd-f", "steps": 0}, {"strategy": "dpsgd-f", "sync": "epoch"}, {"strategy": "gs-dp-sgd"},
    {"strategy": "dp-fedavg", "threshold": "toc", "favourable": 1, "threshold_epsilon": 2.0},
])
def test_the_planned_ledger_costs_what_the_finished_run_does(settings: dict[str, Any]) -> None:
    experiment = Experiment(**{"steps": 3, "hidden": (8,), "batch_size": 64, "noise_multiplier": 1.3,
                               "accountant": "rdp", **settings})
    planned, ledger = planned_ledger(experiment), run(experiment).ledger
    assert planned.epsilon() == pytest.approx(ledger.epsilon(), rel=1e-12)
    assert planned.validation_epsilon() == pytest.approx(ledger.validation_epsilon(), rel=1e-12)
