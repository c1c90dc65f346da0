"""Runs whose nodes compute on another device than the server, as with `device="cuda"`: the numbers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from fedfair.gradients.layer_gradients import flat
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import LocalTraining, Round
from simulations import Experiment, run
from simulations.audits.audit import audit
from simulations.audits.membership import membership
from simulations.plans.curves import theta_curve
from simulations.results.result import Result
from strategies import STRATEGIES
from tests.far_device import FAR, Far, far_device
from tests.strategies.test_contract import ONE_ROUND, SETTINGS
from tests.strategies.two_groups import two_groups

MODES = [(name, STRATEGIES[name].modes[number % len(STRATEGIES[name].modes)])
         for number, name in enumerate(STRATEGIES)]  # each in one of its modes, which are the same on every device


@pytest.fixture(autouse=True)
def there(two_threads: None) -> Iterator[None]:
    """Provide the device, and limit PyTorch to one thread: models are tiny here."""
    torch.set_num_threads(1)
    with far_device():
        yield


def experiment(**settings: Any) -> Experiment:
    data = {} if "dataset" in settings else two_groups()
    return Experiment(**{"hidden": (6,), "steps": 2, "batch_size": 32, "noise_multiplier": 1.0, "learning_rate": 0.1,
                         "dtype": "float64", "eval_every": 1, **data, **settings})


def same(**settings: Any) -> Result:
    """Run on the device, and check that the result is that of the processor."""
    near, far = run(experiment(**settings)), run(experiment(device=FAR, **settings))
    for one, other in zip(near.model.parameters(), far.model.parameters(), strict=True):
        assert not isinstance(other, Far)
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)
    columns = ["round", "split", "group", "metric"]
    both = near.metrics.merge(far.metrics, on=columns, how="outer", validate="1:1")
    assert len(both) == len(near.metrics)
    torch.testing.assert_close(torch.tensor(both["value_y"]), torch.tensor(both["value_x"]), rtol=1e-7, atol=1e-10,
                               equal_nan=True)
    assert far.ledger.epsilon() == near.ledger.epsilon()
    return far


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="on lazy and on the processor"):
        x + x.to(FAR)
    assert torch.equal((x.to(FAR) + 1).cpu(), x + 1)


@pytest.mark.parametrize(("strategy", "sync"), MODES)
def test_every_strategy(strategy: str, sync: str) -> None:
    data = {"dataset": "digits"} if strategy in ONE_ROUND else {}  # whose ranges are known, so that none are learned
    same(strategy=strategy, sync=sync, **data, **SETTINGS.get(strategy, {}))


@pytest.mark.parametrize("settings", [
    {"dataset": "digits"}, {"risk_every": 2}, {"threshold": "toc"}, {"threshold": "toc", "threshold_epsilon": 1.0},
    {"noise": "discrete"}, {"trust": "local"}, {"model": "cnn", "hidden": (3, 2), "dataset": "digits"},
    {"optimizer": "adam"}, pytest.param({
        "strategy": "fedavg", "model": "next_word", "hidden": (2, 3), "dataset": "shakespeare", "partition": "natural",
        "group": "role", "batch_size": 8, "steps": 1, "eval_every": 9}, marks=pytest.mark.slow)],
    ids=lambda settings: " ".join(settings))
def test_every_kind_of_run(settings: dict[str, Any]) -> None:
    same(**{"strategy": "dpsgd", **settings})


def test_a_threshold_can_be_followed_and_members_be_told() -> None:
    settings = {"strategy": "dpsgd", "threshold": "toc"}
    found, near = same(**settings), run(experiment(**settings))
    assert len(list(theta_curve(found, [0.0, 0.1]))) == 2
    assert membership(found).findings == membership(near).findings


@pytest.mark.parametrize("strategy", ["dpsgd", "dp-fedavg"])
def test_canaries_can_be_planted(strategy: str) -> None:
    near, far = (audit(experiment(strategy=strategy, device=device), canaries=20) for device in ("cpu", FAR))
    assert far.findings == near.findings


def test_a_client_of_ones_own_trains_there() -> None:
    local = LocalTraining(batch_size=8, optimizer="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.0,
                          noise_multipliers=(1.0,), weights=(1.0,), sizes=(0,))
    plan = Round(key=None, step=0, rates=(1.0,), noise_multiplier=1.0, trust=Trust.LOCAL, clients=1, rule=Flat(1.0),
                 local=local).to_json()
    model, group = nn.Sequential(nn.Linear(3, 2)), torch.zeros(40, dtype=torch.long)
    there, before = deepcopy(model).to(FAR), flat(model.state_dict())
    train_privately(there, torch.randn(40, 3).to(FAR), group.to(FAR), group.to(FAR), plan)
    assert all(isinstance(parameter, Far) for parameter in there.parameters())
    assert not torch.equal(flat(there.state_dict()).cpu(), before)
