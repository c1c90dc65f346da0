"""A node's ledger survives kills and torn lines, is shared by processes, and does not slow down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfair.accounting.events import Release
from fedfair.accounting.odometer import spent
from fedfair.node.node_ledger import NodeLedger

STEP = Release(0.01, 2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def entered(path: Path, times: int, release: Release = STEP, data: str = "a") -> list[bool]:
    ledger = NodeLedger(path)
    return [ledger.enter(data, release, 1, 100.0, 1e-5) for _ in range(times)]


def test_entries_of_all_runs_add_up_for_each_data_set(path: Path) -> None:
    entered(path, 3)
    entered(path, 2, Release(0.02, 1.0))
    entered(path, 4)
    entered(path, 1, data="b")
    ledger = NodeLedger(path)
    assert ledger.released("a") == {STEP: 7, Release(0.02, 1.0): 2}
    assert ledger.released("b") == {STEP: 1}
    assert ledger.epsilon("a", 1e-5) == spent({STEP: 7, Release(0.02, 1.0): 2}, 1e-5)
    assert ledger.epsilon("c", 1e-5) == 0


def test_what_would_exceed_the_limit_is_not_entered(path: Path) -> None:
    ledger = NodeLedger(path)
    assert not ledger.enter("a", Release(1.0, 1.0), 1, 1.0, 1e-5)
    assert ledger.enter("a", STEP, 1000, 1.0, 1e-5)
    before = path.read_bytes()
    assert not ledger.enter("a", STEP, 10**6, 1.0, 1e-5)
    assert ledger.enter("b", STEP, 1000, 1.0, 1e-5)
    assert path.read_bytes().startswith(before)
    assert ledger.epsilon("a", 1e-5) <= 1


def test_totals_stand_for_the_lines_before_them(path: Path) -> None:
    """Only what follows them is read, so the lines before may be anything, and there may be many."""
    ledger = NodeLedger(path)
    for number in range(450):
        assert ledger.enter("a", Release(0.01, 2.0 + number % 3), 1, 9.0, 1e-5, batch=f"{number % 5}", follows=STEP)
    assert ledger.settle("3", lambda due: due == STEP)
    lines = path.read_text().splitlines()
    assert sum(json.loads(line).get("totals") is not None for line in lines) == 2
    expected = {Release(0.01, 2.0 + kind): 150 for kind in range(3)}
    assert ledger.released("a") == expected
    after = max(number for number, line in enumerate(lines) if "totals" in line)
    path.write_text("\n".join(["nonsense"] * after + lines[after:]) + "\n")
    assert ledger.released("a") == expected
    assert ledger.settle("4", lambda due: True)
    assert not ledger.settle("4", lambda due: True)
    assert not ledger.settle("3", lambda due: True)
    assert not ledger.settle("2", lambda due: False)


@pytest.mark.parametrize("cut", [1, 20, 60])
@pytest.mark.parametrize("entries", [3, 201])
def test_a_torn_line_is_read_as_spent(path: Path, cut: int, entries: int) -> None:
    """Also right after the totals; and the next entry begins a line of its own."""
    entered(path, entries)
    whole = path.read_bytes()
    entered(path, 1)
    torn = path.read_bytes()[:len(whole) + cut]
    path.write_bytes(torn)
    assert NodeLedger(path).released("a") == {STEP: entries + 1}
    entered(path, 2)
    assert path.read_bytes().startswith(torn + b"\n")
    assert NodeLedger(path).released("a") == {STEP: entries + 3}


def test_torn_totals_lose_nothing(path: Path) -> None:
    entered(path, 201)
    whole = path.read_bytes()
    assert b"totals" in whole.splitlines()[-1]
    path.write_bytes(whole[:-20])
    assert NodeLedger(path).released("a")[STEP] >= 201
    entered(path, 1)
    assert NodeLedger(path).released("a")[STEP] >= 202


WRITER = """
import sys
from pathlib import Path
from fedfair.accounting.events import Release
from fedfair.node.node_ledger import NodeLedger
ledger = NodeLedger(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    if ledger.enter("a", Release(0.01, 2.0), 1, float(sys.argv[3]), 1e-5):
        print("released", flush=True)
"""


def writer(path: Path, times: int, limit: float = 1e6, python: Path | str = sys.executable) -> subprocess.Popen[str]:
    return subprocess.Popen([python, "-c", WRITER, str(path), str(times), str(limit)], text=True,
                            stdout=subprocess.PIPE)


def test_processes_share_one_ledger(path: Path, forked: Path) -> None:
    processes = [writer(path, 60, python=forked / "python") for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert [output.count("released") for output in outputs] == [60] * 3
    assert NodeLedger(path).released("a") == {STEP: 180}


def test_processes_share_one_limit(path: Path, forked: Path) -> None:
    limit = spent({STEP: 50}, 1e-5)
    processes = [writer(path, 40, limit, forked / "python") for _ in range(2)]
    released = sum(process.communicate()[0].count("released") for process in processes)
    assert released == 50
    assert NodeLedger(path).released("a") == {STEP: 50}


def test_what_was_released_before_a_kill_is_in_the_ledger(path: Path) -> None:
    process = writer(path, 10**6)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(30)]
    os.kill(process.pid, signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait()
    released, there = seen.count("released\n"), NodeLedger(path).released("a")[STEP]
    assert released <= there <= released + 1
    assert entered(path, 1) == [True]


def test_an_entry_that_cannot_be_written_is_an_error(path: Path) -> None:
    entered(path, 1)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        entered(path, 1)


def test_many_rounds_do_not_make_it_slow(path: Path) -> None:
    """The reading is that of the latest totals on, however long the file is."""
    def seconds() -> float:
        start = time.process_time()
        entered(path, 50)
        return time.process_time() - start

    entered(path, 10)
    first = min(seconds() for _ in range(4))
    line = path.read_text().splitlines()[-1]
    entered(path, 1)
    size = 200_000
    path.write_text(f"{line}\n" * size + json.dumps(
        {"totals": {"a": [[*STEP, size]]}, "promised": {}, "latest": json.loads(line)}) + "\n")
    assert NodeLedger(path).released("a") == {STEP: size}
    ledger = NodeLedger(path)
    start = time.process_time()
    for _ in range(50):
        assert ledger.enter("a", STEP, 1, 1e3, 1e-5)
    assert time.process_time() - start < 5 * first + 0.5
