"""Real SuperNodes that each open a file of their own, and a server whose folder holds a schema alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w

from fedfair.node.node_ledger import NodeLedger
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.hazards.policed import POLICY
from tests.ports import free_ports
from tests.simulations.engines.runtime import superlink, supernode
from tests.simulations.engines.wire import Wire, recorded

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
NODES = 3


@contextmanager
def running(environment: dict[str, str], folder: Path, configs: Sequence[str]) -> Iterator[tuple[Path, Wire]]:
    """Run a SuperLink in a folder of its own, and a SuperNode in a folder of its own for each node config.

    Yields the server's folder, and what nodes and SuperLink say to each other.
    """
    link, between, *ports = free_ports(2 + len(configs))
    server = folder / "server"
    server.mkdir()
    (server / "study.toml").write_text(SCHEMA)
    started = [superlink(link, environment, server)]
    with recorded(between, link) as wire:
        for number, config in enumerate(configs):
            started.append(supernode(number, between, ports[number], environment, folder / f"node{number}.log",
                                     len(configs), folder / f"site{number}", config))
        yield server, wire
        for process in reversed(started):
            process.terminate()
            process.wait()


def flwr_run(environment: dict[str, str], server: Path, **settings: Any) -> str:
    """Run an experiment over the nodes, and return what is printed."""
    given = {"partition": "nodes", "schema_file": "study.toml", **settings}
    config = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in given.items())
    done = subprocess.run(["flwr", "run", str(ROOT), "own", "--stream", "--run-config", config], env=environment,
                          cwd=server, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Write a file for each node into a folder of its own."""
    for number in range(NODES):
        (tmp_path / f"site{number}").mkdir()
        table(60 + 20 * number, number).to_csv(tmp_path / f"site{number}" / "patients.csv", index=False)
    return tuple(str(tmp_path / f"site{number}" / "patients.csv") for number in range(NODES))


def test_nodes_with_policies_train_dpsgd_f_and_nothing_travels_but_what_their_ledgers_name(
        deployment: dict[str, str], tmp_path: Path, files: tuple[str, ...]) -> None:
    entry = {**POLICY["data"][0], "file": "patients.csv", "task": {"partition": "nodes", "schema_file": "study.toml"}}
    for file in files:
        site = Path(file).parent
        (site / "study.toml").write_text(SCHEMA)
        pd.read_csv(file).assign(remark=[f"remark-{row}-of-Zaphod" for row in range(len(pd.read_csv(file)))]).to_csv(
            file, index=False)
        (site / "node.toml").write_text(tomli_w.dumps({**POLICY, "data": [entry],
                                                       "evaluated_parts": ["valid", "test"]}))
    settings: dict[str, Any] = {"strategy": "dpsgd-f", "trust": "local", "randomness": "system", "model": "logistic",
                                "batch_size": 40, "steps": 2, "noise_multiplier": 1.0, "preset": "", "sync": "step"}
    with running(deployment, tmp_path, ['policy="node.toml"'] * NODES) as (server, wire):
        said = flwr_run(deployment, server, out=str(tmp_path / "out"), **settings)
        assert f"Results are in {tmp_path / 'out'}" in said, said[-3000:]
    up = {name.decode() for name in re.findall(rb"[a-z_]+\.send_[a-z_]+", wire.up)}
    asked = {name.decode() for name in re.findall(rb"\x04name\x12.\*.([a-z_]+\.send_[a-z_]+)", wire.down, re.DOTALL)}
    allowed = {"exchanges.send_sizes", "exchanges.send_counts", "exchanges.send_gradient_sum",
               "exchanges.send_evaluation"}  # the first is public, the others are in the ledgers
    assert up <= allowed
    assert asked == allowed  # what is equal in a request and its answer, Flower sends but once: a name may be in one
    assert b"Zaphod" not in wire.up + wire.down
    assert b"patients" not in wire.up  # nor what an owner calls the file, or the records
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert summary.guarantee.tolist() == ["proved"]
    for file in files:
        released = NodeLedger(Path(file).parent / "fedfair-node-ledger.jsonl").released("patients")
        assert sum(released.values()) == 2, released
        noted = Path(file).with_name("fedfair-node-ledger.jsonl").read_text()
        assert {*re.findall(r"[a-z_]+\.send_[a-z_]+", noted)} == {"exchanges.send_counts", "exchanges.send_evaluation"}
        assert all(release.multiplier == pytest.approx(1.0, rel=0.01) for release in released)
