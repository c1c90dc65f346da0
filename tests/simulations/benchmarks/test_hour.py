"""Memory of servers over time: what grows is told from what is started anew."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from simulations.benchmarks import hour
from simulations.benchmarks.hour import Watch, share_of_a_core

_HOLDS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; held = bytearray(40 * 2**20); time.sleep(10**6)"]).wait()
"""


def test_a_process_and_what_it_started_are_rows() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDS]) as started:
        try:
            watch = Watch({"parent": started.pid})
            while len(rows := watch.rows()) < 2 or rows[1]["most"] < 40:  # type: ignore[operator]
                watch.look()
                time.sleep(0.1)
            assert 0 < share_of_a_core({"parent": started.pid}, watch.start) < 20
        finally:
            for process in [*watch._processes["parent"].children(), watch._processes["parent"]]:
                process.kill()
    assert rows[0]["process"] == "parent"
    assert str(rows[1]["process"]).startswith("parent: ")
    assert rows[1]["MiB an hour"] is None  # not warm yet


def test_growth_is_that_after_the_start() -> None:
    course = {(7, window): 500.0 - window if window < 20 else 100.0 + window for window in range(120)}
    row = hour._row("server", course)
    assert (row["first"], row["warm"], row["last"]) == (500, 120, 219)
    assert row["MiB an hour"] == pytest.approx(120)


def test_a_program_started_again_and_again_is_what_each_has_at_most() -> None:
    course = {(process, 20 + 2 * process + half): (30.0, 400.0)[half] for process in range(9) for half in (0, 1)}
    row = hour._row("app", {**course, (9, 60): 3.0})  # the latest has only begun
    assert (row["started"], row["first"], row["last"], row["most"]) == (10, 400, 400, 400)
    assert row["MiB an hour"] == pytest.approx(0, abs=1e-6)
