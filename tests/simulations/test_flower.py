"""`flwr run .` on Flower's own runtime, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from simulations.server_app import from_run_config

ROOT = Path(__file__).resolve().parents[2]


def test_the_run_config_knows_every_field_of_an_experiment() -> None:
    import tomllib

    from simulations import Experiment

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    of_the_run = {"preset", "out", "checkpoint-every"}
    assert set(config) == {name.replace("_", "-") for name in Experiment.model_fields} | of_the_run
    made = from_run_config({**config, "options": "bounds=authors max_bound=4", "hidden": "[32, 16]", "seed": 3})
    assert (made.strategy, made.sync, made.hidden, made.seed) == ("dpsgd-f", "epoch", (32, 16), 3)
    assert made.options == {"bounds": "authors", "max_bound": 4}


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a SuperLink of the test's own, which is ended afterwards by its process id."""
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "PATH": f"{binaries}:{os.environ['PATH']}",
                   "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    yield environment
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"FLWR_HOME={tmp_path / 'flwr'}".encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            os.kill(int(process.name), signal.SIGTERM)


@pytest.mark.slow
def test_flwr_run_without_arguments_and_with_a_run_config(flower: dict[str, str], tmp_path: Path) -> None:
    for config, strategy in ((f'out="{tmp_path}/one"', "dpsgd-f"), (
            f'out="{tmp_path}/two" strategy="dpsgd" sync="step" steps=5 target-epsilon="" clients=3', "dpsgd")):
        done = subprocess.run(["flwr", "run", str(ROOT), "--stream", "--run-config", config], env=flower, cwd=tmp_path,
                              capture_output=True, text=True, timeout=400, check=True)
        output = done.stdout + done.stderr
        folder = tmp_path / ("one" if strategy == "dpsgd-f" else "two")
        assert f"Results are in {folder}" in output, output[-3000:]
        assert "8 (40)" in output
        assert pd.read_csv(folder / "summary.csv")["strategy"].tolist() == [strategy]
