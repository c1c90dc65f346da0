"""Secure sums on Flower's runtime: its simulation, and a SuperLink with three SuperNodes as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from simulations import Experiment, run
from simulations.flower_run import experiment_of as from_run_config
from simulations.results.result import Result
from tests.ports import free_ports
from tests.simulations.engines.runtime import superlink, supernode
from tests.simulations.engines.test_flower import ROOT

SETTINGS: dict[str, Any] = {
    "strategy": "moments", "sync": "step", "clients": 3, "partition": "site", "model": "linear", "features": "bounded",
    "hidden": (), "dtype": "float64", "trust": "distributed", "noise": "discrete", "noise_multiplier": 2.0,
    "secure_aggregation": True, "batch_size": 32, "delta": 1e-5}


def weights(result: Result) -> torch.Tensor:
    return next(result.model.parameters()).detach()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_flowers_simulation_gives_the_sum_of_the_local_engine() -> None:
    made, before = Experiment(**SETTINGS), dict(os.environ)
    there, here = run(made, engine="flower", nodes=3), run(made, nodes=3)
    assert os.environ.get("PYTHONPATH") == before.get("PYTHONPATH")  # else later programs find other packages
    assert torch.allclose(weights(there), weights(here), rtol=0, atol=1e-12)
    assert there.ledger.by_observer() == here.ledger.by_observer()


def released(environment: dict[str, str], cwd: Path, **settings: Any) -> tuple[Path, Experiment]:
    """Run on the SuperLink "own"; return the folder of the result, and what was run."""
    out = cwd / "out"
    own = {name.replace("_", "-"): value for name, value in {**SETTINGS, **settings}.items()}
    values = {**own, "hidden": "[]", "out": str(out)}
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
    done = subprocess.run(["flwr", "run", str(ROOT), "own", "--stream", "--run-config", config], env=environment,
                          cwd=cwd, capture_output=True, text=True, check=True)
    assert f"Results are in {out}" in done.stdout + done.stderr, (done.stdout + done.stderr)[-3000:]
    defaults = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return out, from_run_config({**defaults, **values})


@pytest.mark.slow
def test_three_supernodes_give_the_front_of_the_same_draws_without_masks(
        deployment: dict[str, str], tmp_path: Path) -> None:
    link, *ports = free_ports(4)
    server = superlink(link, deployment, tmp_path)
    nodes = [supernode(p, link, ports[p], deployment, tmp_path / f"node{p}.log") for p in range(3)]
    out, made = released(deployment, tmp_path)
    plain = run(made.model_copy(update={"secure_aggregation": False}))
    (there,) = load_file(out / "model.safetensors").values()
    assert torch.allclose(there, weights(plain), rtol=0, atol=1e-9)
    assert plain.front is not None
    (front,) = load_file(out / "front.safetensors").values()
    assert torch.allclose(front, plain.front.front.weights, rtol=0, atol=1e-6)
    observed = json.loads((out / "ledger.json").read_text())["by_observer"]
    assert observed["server"] == pytest.approx(observed["model"])
    assert plain.ledger.by_observer()["server"] > 1.5 * observed["server"]
    for process in (*nodes, server):
        process.terminate()
        process.wait()
