"""A SuperLink that is killed within a run, whose server app ends with it, and that is started again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fedfair.accounting import epsilon
from fedfair.node.node_ledger import NodeLedger
from simulations.commands.node import init
from simulations.files.atomic_files import alone_in
from simulations.results.result_folder import CHECKPOINT
from simulations.results.run_folder import RunFolder
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.guard import wait_until
from tests.ports import free_ports
from tests.simulations.engines.runtime import kill_superlink, superlink, supernode

ROOT = Path(__file__).resolve().parents[3]
NODES, ROUNDS, DELTA = 2, 4, 1e-6


def asked(folder: Path) -> list[str]:
    """Return the command that runs some epochs over the nodes, with randomness of the operating system."""
    settings = {"partition": "nodes", "schema_file": "study.toml", "mode": "deployment", "strategy": "dpsgd-f",
                "model": "logistic", "sync": "epoch", "steps": ROUNDS, "batch_size": 30, "noise_multiplier": 1.5,
                "delta": DELTA, "out": str(folder / "out")}
    config = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in settings.items())
    return ["flwr", "run", str(ROOT), "own", "--stream", "--run-config", config]


def is_free(folder: Path) -> bool:
    """Return whether no run is at work in a folder: the server app of a killed SuperLink ends once another answers."""
    try:
        with alone_in(folder):
            return True
    except BlockingIOError:
        return False


@pytest.mark.slow
def test_the_same_command_goes_on_and_charges_the_lost_round(deployment: dict[str, str], tmp_path: Path) -> None:
    link, *ports = free_ports(1 + NODES)
    server = tmp_path / "server"
    server.mkdir()
    (server / "study.toml").write_text(SCHEMA)
    started = superlink(link, deployment, server, database=tmp_path / "link.db")
    nodes = []
    for number in range(NODES):
        site = tmp_path / f"site{number}"
        site.mkdir()
        (site / "study.toml").write_text(SCHEMA)
        table(90 + 30 * number, number).to_csv(site / "patients.csv", index=False)
        init(site / "patients.csv", schema=site / "study.toml", epsilon=50.0, delta=DELTA, noise=0.8, name="patients",
             out=site / "fedfair-node.toml")
        nodes.append(supernode(number, link, ports[number], deployment, tmp_path / f"node{number}.log", NODES, site,
                               "policy='fedfair-node.toml'"))
    log = (tmp_path / "first.log").open("w")
    with log, subprocess.Popen(asked(tmp_path), env=deployment, cwd=server, stdout=log, stderr=log, text=True) as first:
        ledger = tmp_path / "site0" / "fedfair-node-ledger.jsonl"  # which is there once an epoch was released
        wait_until(lambda: ledger.exists() and (tmp_path / "out" / CHECKPOINT).exists(), first)
        kill_superlink(started, link)
        first.kill()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    started = superlink(link, deployment, server, database=tmp_path / "link.db")
    wait_until(lambda: is_free(tmp_path / "out"))
    done = subprocess.run(asked(tmp_path), env=deployment, cwd=server, capture_output=True, text=True,
                          check=False)
    assert f"Results are in {tmp_path / 'out'}" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    spent = RunFolder(tmp_path / "out").ledgers[""]
    assert spent.guarantee == "proved"
    for number in range(NODES):
        charged = sum(steps for event, steps in spent.events.items() if event.client == number)
        assert charged % (ROUNDS + 1) == 0  # a round is some steps, and the one that may have been lost was charged
        released = NodeLedger(tmp_path / f"site{number}" / "fedfair-node-ledger.jsonl").released("patients")
        assert charged * ROUNDS / (ROUNDS + 1) <= sum(released.values()) <= charged
        assert epsilon(released, DELTA, spent.accountant) <= spent.epsilon() * (1 + 1e-3)
    for process in (*nodes, started):
        process.terminate()
        process.wait()
