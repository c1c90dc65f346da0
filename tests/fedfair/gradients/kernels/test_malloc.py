"""Memory that a process keeps, in processes of their own: it is kept for good."""

from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource, torch
{before}
def touch():
    for size in (2**20, 5 * 2**20, 2**23, 3 * 2**20):
        torch.zeros(size).add_(torch.ones(size))
for _ in range(3):
    touch()
start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""
HOST = """
from fedfair.node.node import Node
from fedfair.protocol.task import Task
task = Task(hidden=(4,))
Node(task.clients_data(), task.build_model(), "cpu")
"""


def faults(before: str) -> int:
    """How many pages had to be cleared for blocks that had just been freed."""
    command = [sys.executable, "-c", FAULTS.format(before=before)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_host_keeps_what_is_freed_for_the_next_step() -> None:
    assert faults("") > 10_000
    assert faults(HOST) < 1_000
