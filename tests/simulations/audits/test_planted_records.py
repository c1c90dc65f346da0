"""The audit of released moments: it comes near what is claimed, never above, and finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedfair.datasets import GroupedDataset
from fedfair.moments.release import Moments as Released
from fedfair.moments.sums import moment_sums, unsvec
from fedfair.node.moment_sums import Wanted
from simulations.audits.audit import DEFAULTS, audit
from simulations.audits.findings import Audit
from simulations.audits.planted_records import plant_records, scores_of
from simulations.settings.experiment import Experiment
from strategies.server import rounds as server


def audited(canaries: int = 5_000, **settings: Any) -> Audit:
    """Audit a run of moments on Adult, whose features are many enough that canaries hardly overlap."""
    made = Experiment(**{**DEFAULTS, "dataset": "adult", "strategy": "moments", "features": "bounded",
                         "model": "linear", "hidden": (), "bins": 30, "target_epsilon": 3.0, **settings})
    return audit(made, canaries)


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_no_seed_refutes_the_claim_and_each_reaches_35_percent_of_it(epsilon: float, seed: int) -> None:
    found = audited(20_000, seed=seed, target_epsilon=epsilon)
    assert not found.refuted
    assert found.overall.claimed == pytest.approx(epsilon, rel=0.01)
    assert found.overall.bound.epsilon >= 0.35 * found.overall.claimed
    assert found.overall.if_gaussian is not None
    assert 0.5 * epsilon < found.overall.if_gaussian < epsilon


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("seed", range(5))
def test_no_seed_refutes_the_claim_with_logistic_steps(seed: int) -> None:
    """Random features are about as far from either class, so that a canary's gradient is half of what one can be."""
    found = audited(20_000, seed=seed, options={"logistic_steps": 2})
    assert not found.refuted
    assert found.overall.bound.epsilon >= 0.15 * found.overall.claimed
    assert found.overall.if_gaussian is not None
    assert found.overall.if_gaussian < 3


@pytest.mark.usefixtures("data_dir")
def test_gradients_of_logistic_steps_tell_of_canaries_beside_the_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    with_steps = audited(target_epsilon=1.0, options={"logistic_steps": 2}).overall.if_gaussian
    monkeypatch.setattr("simulations.audits.planted_records.scores_of_step", lambda *_: 0.0)
    without = audited(target_epsilon=1.0, options={"logistic_steps": 2}).overall.if_gaussian
    assert with_steps is not None
    assert without is not None
    assert with_steps > 1.1 * without


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("settings", [{"trust": "local"}, {"trust": "distributed", "partition": "site", "clients": 3},
                                      {"options": {"by_group": True}, "bins": 12}])
def test_no_trust_nor_moments_by_group_refute_the_claim(settings: dict[str, Any]) -> None:
    found = audited(**settings)
    assert not found.refuted
    assert found.overall.bound.epsilon >= 0.2 * found.overall.claimed


@pytest.mark.usefixtures("data_dir")
def test_a_third_of_the_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = server.add_noise
    monkeypatch.setattr(server, "add_noise", lambda kind, values, deviation, draws: whole(
        kind, values, deviation / 3, draws))
    assert audited(target_epsilon=1.0).refuted


def test_scores_without_noise_tell_every_canary() -> None:
    """Also by group, and with groups that are not apart."""
    draws = torch.Generator().manual_seed(0)
    known = GroupedDataset(torch.randn(40, 30, generator=draws, dtype=torch.float64),
                           torch.randint(2, (40,), generator=draws), torch.randint(2, (40,), generator=draws),
                           ("a", "b"), 2)
    planted = plant_records(20, known, ((20, 0), (0, 20)), 0)
    assert planted.clients.tolist() == [0, 1] * 10
    assert torch.allclose(planted.x.norm(dim=1), torch.ones(20, dtype=torch.float64))
    for wanted in (Wanted(2, False), Wanted(2, True), Wanted(1, False), Wanted(2, False, mixing=True)):
        rows = planted.included
        group = torch.cat([known.group, planted.group[rows]]) * (wanted.groups - 1)
        made = moment_sums(torch.cat([known.x, planted.x[rows]]), torch.cat([known.y, planted.y[rows]]), group,
                           wanted.groups, 2, wanted.by_group)
        released = Released(unsvec(made["second"]), made["first"], 0.1, 1.0, mixing=wanted.mixing)
        assert torch.equal(scores_of(released, [known], planted, wanted) > 0, planted.included)
