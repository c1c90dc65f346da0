"""The tools of the benchmarks: memory of all processes, pictures, and files that differ."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from simulations.benchmarks.kills import different, killed
from simulations.benchmarks.measuring import measure, undisturbed
from simulations.plans.sweep import Sweep, trials
from tests.guard import wait_until

CHILD = "import time; held = bytearray(150 * 2**20); time.sleep(1)"
PARENT = f"""
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
child.wait()
print("something else")
print(json.dumps({{"ms": 7}}))
"""


def test_memory_is_that_of_all_processes_and_the_last_line_is_what_is_said() -> None:
    found = measure([sys.executable, "-c", PARENT])
    assert undisturbed([sys.executable, "-c", PARENT]) == found.said
    assert found.said == {"ms": 7}
    assert 150 < found.mebibytes < 300


def test_a_command_that_fails_is_quoted() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3: no"):
        measure([sys.executable, "-c", "print('no'); raise SystemExit(3)"])


def test_files_that_differ_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "trials" / "one").mkdir(parents=True)
        (tmp_path / name / "summary.csv").write_text("x\n")
        save_file({"w": torch.ones(3)}, tmp_path / name / "trials" / "one" / "model.safetensors")
    assert different(tmp_path / "a", tmp_path / "b") == []
    save_file({"w": torch.ones(3) * (1 + 2e-7)}, tmp_path / "b" / "trials" / "one" / "model.safetensors")
    (tmp_path / "b" / "ledger.json").write_text("{}")
    assert different(tmp_path / "a", tmp_path / "b") == ["ledger.json", "trials/one/model.safetensors"]


def test_a_command_is_killed_as_often_as_asked_and_then_left_alone(tmp_path: Path) -> None:
    note, begun = tmp_path / "starts", iter((1, 2))
    note.touch()

    def moment() -> float:
        """Wait until the command has begun once more: it is killed at once then."""
        starts = next(begun)
        wait_until(lambda: note.read_text().count("x") == starts)
        return 0.0

    assert killed(["sh", "-c", f"echo x >> {note}; [ $(wc -l < {note}) -gt 2 ] || sleep 1000"], 2, moment) == 2
    assert note.read_text().count("x") == 3


def test_table_1_of_yang_is_540_trials_of_the_published_methods() -> None:
    from simulations.benchmarks.runs import TABLE  # here: Ray Tune takes a second to import

    planned = trials(Sweep.read(TABLE))
    assert len(planned) == 540
    published = tomllib.loads((TABLE.parents[1] / "published" / "yang2024-table1.toml").read_text())
    assert {made.strategy for made in planned.values()} == {m["strategy"] for m in published["methods"].values()}
    assert {made.dataset for made in planned.values()} == {d["dataset"] for d in published["datasets"].values()}
    assert {made.seed for made in planned.values()} == set(range(published["seeds"]))
