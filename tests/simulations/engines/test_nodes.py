"""Two Ray nodes on one machine, one of which dies in the middle of a run and of a sweep."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest
import torch
from safetensors.torch import load_file

from simulations import run
from simulations.plans.compare import compare, experiments
from simulations.plans.sweep import Sweep
from simulations.results.result import summary

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.slow

QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 2000,
         "health_check_failure_threshold": 3}  # a dead node is noticed within seconds
SETTINGS: dict[str, Any] = {"steps": 200, "hidden": (8,), "dtype": "float64", "accountant": "rdp", "eval_every": 1e9}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start two raylets with a core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False,
                                                         "_system_config": QUICK})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a program, as from a shell."""
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def kill_a_node(cluster: Cluster) -> None:
    """Kill the second raylet and all that it started."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def is_at_work(cluster: Cluster) -> bool:
    """Say whether a process of the second raylet makes trials."""
    raylet = next(iter(cluster.worker_nodes)).all_processes["raylet"][0].process.pid
    processes = psutil.process_iter(["ppid", "cmdline"])
    return any(process.info["ppid"] == raylet and "ray::ImplicitFunc.train" in " ".join(process.info["cmdline"] or ())
               for process in processes)


def wait_for(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds, while the program runs."""
    while not there():
        assert process.poll() is None, process.communicate()[0][-2000:]
        time.sleep(0.05)


def finish(process: subprocess.Popen[str]) -> str:
    """Return the output of a program that ends well."""
    try:
        output, _ = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 0, output[-3000:]
    return output


def test_a_run_on_two_nodes_of_which_one_dies_is_that_of_the_local_engine(cluster: Cluster, tmp_path: Path, forked: Path
                                                                            ) -> None:
    """An actor needs a whole core, so it waits for the node that replaces the dead one."""
    undisturbed = run(experiments(["dpsgd-f"], [0], None, {"dataset": "digits", **SETTINGS})[0])
    settings = [part for key, value in SETTINGS.items() if key != "hidden" for part in ("--set", f"{key}={value}")]
    process = start(str(forked / "fedfair"), "run", "--strategy", "dpsgd-f", *settings, "--set", "hidden=[8]",
                    "--engine", "ray", "--nodes", "2", "--engine-set", f"address={cluster.address}",
                    "--out", str(tmp_path / "run"), "--checkpoint-every", "20")
    wait_for((tmp_path / "run" / "checkpoint.pt").exists, process)
    kill_a_node(cluster)
    cluster.add_node(num_cpus=1)
    finish(process)
    one, other = undisturbed.save(tmp_path / "local"), tmp_path / "run"
    weights = [load_file(folder / "model.safetensors") for folder in (one, other)]
    assert all(torch.allclose(value, weights[1][name], rtol=0, atol=1e-12) for name, value in weights[0].items())
    assert (one / "ledger.json").read_text() == (other / "ledger.json").read_text()
    metrics = [pd.read_parquet(folder / "metrics.parquet") for folder in (one, other)]
    pd.testing.assert_frame_equal(*metrics, rtol=1e-9)


@pytest.mark.parametrize("strategies", [["gs-dp-sgd"], ["dpsgd", "dpsgd-f"]], ids=["alone", "together"])
def test_a_sweep_on_two_nodes_of_which_one_dies_finishes_on_the_other(cluster: Cluster, tmp_path: Path, forked: Path,
                                                                      strategies: list[str]) -> None:
    """Trials that are made one by one go on from their checkpoints; those that stack begin anew."""
    described = Sweep(strategies=strategies, seeds=4 // len(strategies),
                      settings={**SETTINGS, "hidden": [8], "steps": 150})
    (tmp_path / "sweep.toml").write_text(described.to_toml())
    out = tmp_path / "out"
    process = start(str(forked / "fedfair"), "sweep", str(tmp_path / "sweep.toml"), "--out", str(out),
                    "--ray-address", cluster.address)
    begun = (lambda: any(out.glob("trials/*/checkpoint.pt"))) if len(strategies) == 1 else partial(is_at_work, cluster)
    wait_for(begun, process)
    kill_a_node(cluster)
    output = finish(process)
    expected = summary(compare(next(described.cells()).experiments))
    assert (out / "summary.csv").read_text() == expected.to_csv(index=False)
    assert pd.read_csv(out / "trials.csv")["ended"].tolist() == ["finished"] * 4
    assert [output.count(f"{number} of 4  ") for number in range(1, 5)] == [1] * 4
