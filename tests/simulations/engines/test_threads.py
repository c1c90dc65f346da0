"""Small models are trained by one thread, whatever the machine has; afterwards the number of threads is as before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simulations import Experiment
from simulations.engines.run import run, threads_for


@pytest.fixture(autouse=True)
def two(two_threads: None) -> None:
    """Set two threads, whatever the environment says."""
    torch.set_num_threads(2)


@pytest.mark.parametrize(("settings", "threads"), [
    ({}, 1), ({"model": "logistic", "hidden": ()}, 1), ({"hidden": (400, 400)}, 2),
    ({"hidden": (64,), "batch_size": 1200}, 2)])
def test_threads_follow_the_work_of_a_step(settings: dict[str, Any], threads: int) -> None:
    with threads_for(Experiment(**{"hidden": (64,), "batch_size": 64, **settings})):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_a_convolution_works_more_than_its_parameters_say(monkeypatch: pytest.MonkeyPatch) -> None:
    convolution = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    monkeypatch.setattr("fedfair.protocol.task.Task.build_model", lambda task: convolution)
    with threads_for(Experiment()):
        assert torch.get_num_threads() == 2


def test_a_run_uses_them_and_gives_them_back_after_an_error() -> None:
    seen: list[int] = []

    def stop(done: int, rounds: int) -> None:
        seen.append(torch.get_num_threads())
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        run(Experiment(hidden=(8,), steps=2, batch_size=32), progress=stop)
    assert (seen, torch.get_num_threads()) == ([1], 2)
