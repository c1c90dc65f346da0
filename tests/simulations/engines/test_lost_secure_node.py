"""A SuperNode that is killed within a secure sum, after it has dealt the shares of its secrets to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from simulations.engines.run import conduct
from tests.ports import free_ports
from tests.simulations.engines.runtime import superlink, supernode
from tests.simulations.engines.test_secure_run import released, weights
from tests.strategies.server.releases.test_secure_sum import MASK, Nodes

BEFORE_SUMS = 4  # requests of a node: about its records, for keys, for shares, and for its sums under masks


def killed_at(request: int, node: subprocess.Popen[str], log: Path) -> threading.Thread:
    """Kill a SuperNode, and the programs that it started, as soon as its log tells of so many requests."""
    def watch() -> None:
        while node.poll() is None and log.read_text().count("Received") < request:
            time.sleep(0.02)
        os.killpg(node.pid, signal.SIGKILL)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    return watching


@pytest.mark.slow
def test_the_masks_of_a_killed_supernode_go_and_the_sum_is_that_of_the_others(
        deployment: dict[str, str], tmp_path: Path) -> None:
    link, *ports = free_ports(4)
    server, log = superlink(link, deployment, tmp_path), tmp_path / "node2.log"
    nodes = [supernode(p, link, ports[p], deployment, tmp_path / f"node{p}.log") for p in range(3)]
    killing = killed_at(BEFORE_SUMS, nodes[2], log)
    out, made = released(deployment, tmp_path, dropouts=1, answer_timeout=60.0)
    killing.join()
    assert nodes[2].poll() == -signal.SIGKILL
    oracle = conduct(made, Nodes(3, lost={MASK: {2}}), lambda *_: None)
    (there,) = load_file(out / "model.safetensors").values()
    assert torch.allclose(there, weights(oracle), rtol=0, atol=1e-9)
    everybody = conduct(made, Nodes(3), lambda *_: None)
    assert not torch.allclose(there, weights(everybody), rtol=0, atol=1e-3)
    observed = json.loads((out / "ledger.json").read_text())["by_observer"]
    assert observed["server"] == pytest.approx(observed["model"])
    for process in (*nodes[:2], server):
        process.terminate()
        process.wait()
