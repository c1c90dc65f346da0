"""Small models are trained by one thread, whatever the machine has; threads of large ones sleep while they wait."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfair.plugins import threads
from fedfair.plugins.threads import threads_for
from simulations import Experiment
from simulations.engines.run import run
from tests.for_each import for_each

README = (Path(__file__).resolve().parents[3] / "README.md").read_text()
UNSET = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}


@pytest.fixture(autouse=True)
def two(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set two threads, which sleep while they wait, whatever the environment says and whatever was imported first."""
    monkeypatch.setattr(threads, "_AWAKE", False)
    torch.set_num_threads(2)


def threads_of(**settings: Any) -> int:
    """Return the number of threads for an experiment; see that it is two again afterwards."""
    made = Experiment(**{"hidden": (64,), "batch_size": 64, **settings})
    with threads_for(made.task.build_model(), made.batch_size):
        chosen = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return chosen


@for_each(("settings", "expected"), [
    ({}, 1), ({"model": "logistic", "hidden": ()}, 1), ({"hidden": (256, 256), "batch_size": 128}, 1),
    ({"hidden": (1000, 1000)}, 2), ({"hidden": (64,), "batch_size": 12_000}, 2)])
def test_threads_follow_the_work_of_a_step(settings: dict[str, Any], expected: int) -> None:
    assert threads_of(**settings) == expected


def test_a_convolution_works_more_than_its_parameters_say() -> None:
    with threads_for(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2)), 1):
        assert torch.get_num_threads() == 2


def test_threads_that_wait_in_busy_loops_are_used_only_where_they_are_asked_for(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(threads, "_AWAKE", True)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_of() == 1
    assert not caplog.messages
    assert threads_of(hidden=(1000, 1000)) == 1
    assert "import fedfair first, or set OMP_NUM_THREADS, to use 2" in caplog.text
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_of(hidden=(1000, 1000)) == 2


def test_a_run_uses_them_and_gives_them_back_after_an_error() -> None:
    seen: list[int] = []

    def stop(done: int, rounds: int) -> None:
        seen.append(torch.get_num_threads())
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        run(Experiment(hidden=(8,), steps=2, batch_size=32), progress=stop)
    assert (seen, torch.get_num_threads()) == ([1], 2)


@pytest.mark.parametrize(("first", "given", "expected"), [
    ("fedfair", {}, "passive False"), ("strategies", {}, "passive False"), ("simulations", {}, "passive False"),
    ("torch", {}, "passive True"), ("torch", {"OMP_WAIT_POLICY": "passive"}, "passive False"),
    ("fedfair", {"OMP_WAIT_POLICY": "active"}, "active False")])
def test_the_first_import_decides_how_threads_wait(first: str, given: dict[str, str], expected: str) -> None:
    code = (f"import {first}\nfrom fedfair.plugins.threads import _AWAKE\nimport os\n"
            "print(os.environ['OMP_WAIT_POLICY'], _AWAKE)")
    done = subprocess.run([sys.executable, "-c", code], env={**UNSET, **given}, capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == expected


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core of the machine busy, as a context."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("first", "larger"), [("simulations", ""), ("torch", ", hidden=(256, 256), batch_size=600")])
def test_beside_other_work_a_script_takes_no_more_than_twice_the_processor_time_of_one_thread(
        first: str, larger: str) -> None:
    block = next(b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "result.ledger" in b)
    experiment = re.search(r"Experiment\((.*?)\)", block, re.DOTALL)
    assert experiment is not None
    settings = re.sub("epochs=60", "epochs=2", experiment[1])
    settings = settings.replace(", batch_size=128", "") + larger if larger else settings
    code = f"""
import {first}
import time
import torch
from simulations import Experiment, run

experiment = Experiment({settings})
run(experiment.model_copy(update={{"epochs": 1}}))  # what is made once a process
for threads in (torch.get_num_threads(), 1):
    torch.set_num_threads(threads)
    begun = time.process_time()
    run(experiment)
    print(time.process_time() - begun)
"""
    with busy_cores():
        done = subprocess.run([sys.executable, "-c", code], env=UNSET, capture_output=True, text=True, check=True)
    ours, one = map(float, done.stdout.split())
    assert ours < 2 * one
