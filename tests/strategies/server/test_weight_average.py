"""The average of weights over rounds, against a plain loop over the weights of shorter runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from simulations import run
from simulations.engines.checkpoint import Checkpoint
from strategies.server.existing_app import PrivateTraining
from tests.strategies.test_contract import experiment, weights


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("sync", ["step", "epoch"])
@pytest.mark.parametrize("decay", [0.3, 0.9])
def test_a_run_returns_the_average_of_the_weights_after_its_rounds(decay: float, sync: str) -> None:
    """With one noise, a run of t steps has the weights of a longer one after t."""
    settings: dict[str, Any] = {"sync": sync, "dtype": "float64"}
    average = weights(run(experiment("dpsgd", steps=1, **settings)))
    for t in range(2, 6):
        kept = min(decay, (1 + t) / (10 + t))
        average = kept * average + (1 - kept) * weights(run(experiment("dpsgd", steps=t, **settings)))
    found = run(experiment("dpsgd", steps=5, average=decay, **settings))
    assert torch.allclose(weights(found), average, rtol=0, atol=1e-12)
    assert found.ledger.to_dict() == run(experiment("dpsgd", steps=5, **settings)).ledger.to_dict()


def test_what_is_measured_at_the_end_is_the_average() -> None:
    result = run(experiment("dpsgd", steps=6, average=0.9, learning_rate=2.0))
    test = result.data.test
    with torch.no_grad():
        right = float((result.model(test.x).argmax(1) == test.y).double().mean())
    rows = result.metrics.query("split == 'test' and group == 'all' and metric == 'accuracy'")
    assert rows["value"].iloc[-1] == pytest.approx(right)


@pytest.mark.parametrize("stopped", [3, 6])
def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_average(stopped: int, tmp_path: Path) -> None:
    made = experiment("dpsgd", steps=6, average=0.9)

    def stop(done: int, rounds: int) -> None:
        if done == stopped:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "out", made.settings(), 1)
    with pytest.raises(KeyboardInterrupt):
        run(made, checkpoint=checkpoint, progress=stop)
    assert torch.equal(weights(run(made, checkpoint=checkpoint)), weights(run(made)))


@pytest.mark.usefixtures("keyed_by_seed")
def test_one_round_has_nothing_to_average() -> None:
    averaged, latest = (weights(run(experiment("dpsgd", average=decay, steps=1))) for decay in (0.9, 0.0))
    assert torch.equal(averaged, latest)


def test_an_app_averages_by_itself() -> None:
    with pytest.raises(ValueError, match=r"average is 0\.9, but an app trains as many rounds"):
        PrivateTraining(None, ["a", "b"], average=0.9)  # type: ignore[arg-type]
