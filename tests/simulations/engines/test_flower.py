"""`flwr run .` on Flower's own runtime, as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from simulations import run
from simulations.flower_run import experiment_of as from_run_config
from simulations.settings.run_config import keys
from tests.guard import wait_until
from tests.ports import free_ports
from tests.simulations.engines.runtime import ONE_AT_A_TIME, superlink, supernode

ROOT = Path(__file__).resolve().parents[3]


def test_the_run_config_knows_every_field_of_an_experiment() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config == keys()
    made = from_run_config({**config, "options": "bounds=authors max_bound=4", "hidden": "[32, 16]", "seed": 3,
                            "pixels": "[0.13, 0.31]", "without": '["sex"]', "ranges": "{age = [17, 90]}"})
    assert (made.strategy, made.sync, made.hidden, made.seed) == ("dpsgd-f", "epoch", (32, 16), 3)
    assert made.pixels == (0.13, 0.31)
    assert (made.without, made.ranges) == (("sex",), (("age", 17, 90),))
    assert (made.epochs, made.learning_rate, made.target_epsilon) == (40, 2, 8)
    other = from_run_config({**config, "dataset": "adult", "strategy": "dpsgd", "preset": "yang2024", "sync": "epoch"})
    assert (other.epochs, other.learning_rate, other.target_epsilon) == (160 / 7, 0.01, 2.66)
    assert made.options == {"bounds": "authors", "max_bound": 4}


@pytest.mark.slow
def test_a_superlink_with_three_supernodes_of_which_one_is_killed_and_restarted(
        deployment: dict[str, str], tmp_path: Path) -> None:
    """The run ends with a sentence that says so, and the same command resumes after the last checkpoint."""
    link, *ports = free_ports(5)
    out = tmp_path / "out"
    server = superlink(link, deployment, tmp_path)
    nodes = [supernode(p, link, ports[p], deployment, tmp_path / f"node{p}.log") for p in range(3)]
    settings = {"strategy": "dpsgd-f", "sync": "epoch", "steps": 2, "clients": 3, "partition": "site", "hidden": "[8]",
                "dtype": "float64", "eval-every": 1000.0, "checkpoint-every": 1, "out": str(out)}
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    command = ["flwr", "run", str(ROOT), "own", "--stream", "--run-config", config]
    with subprocess.Popen(command, env=deployment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as first:
        wait_until((out / "checkpoint.pt").exists, first)
        os.killpg(nodes[1].pid, signal.SIGKILL)
        nodes.append(supernode(1, link, ports[3], deployment, tmp_path / "node1.log"))
        assert "Node Unavailable" in first.communicate()[0]
    assert (out / "checkpoint.pt").exists()
    done = subprocess.run(command, env=deployment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"Results are in {out}" in done.stdout + done.stderr, (done.stdout + done.stderr)[-3000:]
    assert "Number of rounds: 1" in done.stdout + done.stderr
    made = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    local = run(from_run_config({**made, **settings})).save(tmp_path / "local")
    weights = [load_file(folder / "model.safetensors") for folder in (local, out)]
    assert all(torch.allclose(value, weights[1][name], rtol=0, atol=1e-12) for name, value in weights[0].items())
    assert (local / "ledger.json").read_text() == (out / "ledger.json").read_text()
    for process in (*nodes, server):
        process.terminate()
        process.wait()


@ONE_AT_A_TIME
@pytest.mark.slow
def test_flwr_run_as_the_readme_has_it(flower: dict[str, str], tmp_path: Path) -> None:
    """But for the folder. Other keys, and models of the user's own, are given to nodes below."""
    done = subprocess.run(["flwr", "run", str(ROOT), "--stream", "--run-config", f'out="{tmp_path / "out"}"'],
                          env=flower, cwd=tmp_path, capture_output=True, text=True, check=True)
    output = done.stdout + done.stderr
    assert f"Results are in {tmp_path / 'out'}" in output, output[-3000:]
    assert "8 (40)" in output
    assert f"out='{tmp_path / 'out'}'" in output[output.index("The run config sets"):].splitlines()[0]
    assert pd.read_csv(tmp_path / "out" / "summary.csv")["strategy"].tolist() == ["dpsgd-f"]


MODEL = """
import time

from fedfair.models.published import mlp


def own_layers(shape, hidden, classes):
    time.sleep({})
    return mlp(shape, (4,), classes)
"""


@pytest.mark.slow
def test_a_node_that_hangs_is_given_up_after_the_timeout_with_a_sentence(
        deployment: dict[str, str], tmp_path: Path) -> None:
    """Its SuperNode is there, but its app sleeps for hours, in a file that only this node has."""
    link, *ports = free_ports(3)
    for folder, seconds in (("server", 0), ("node0", 0), ("node1", 36_000)):
        (tmp_path / folder / "models").mkdir(parents=True)
        (tmp_path / folder / "models" / "own_layers.py").write_text(MODEL.format(seconds))
    server = superlink(link, deployment, tmp_path / "server")
    nodes = [supernode(p, link, ports[p], deployment, tmp_path / f"node{p}.log", 2, tmp_path / f"node{p}")
             for p in range(2)]
    config = 'sync="epoch" steps=1 clients=2 partition="site" settings="model=own-layers answer_timeout=25"'
    start = time.monotonic()
    done = subprocess.run(["flwr", "run", str(ROOT), "own", "--stream", "--run-config", config], env=deployment,
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    said = re.search(r"node (\d+) did not answer within 25 s: look for what hangs there", done.stdout + done.stderr)
    assert said, (done.stdout + done.stderr)[-3000:]
    assert said[1] in (tmp_path / "node1.log").read_text()
    assert time.monotonic() - start > 25
    for process in (*nodes, server):
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_a_simulation_does_not_join_what_somebody_else_started_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would go on trying for ten minutes to join a cluster that has died."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # short, for the names of Ray's sockets
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_ports(1)[0]}")
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        program = "from simulations import Experiment, run\nrun(Experiment(steps=1, hidden=(4,)), 'flower')"
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
