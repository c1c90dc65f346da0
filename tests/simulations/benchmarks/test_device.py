"""The script for a graphics card runs whole on a processor, in small, so that a card's minutes are not lost to it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from typer.testing import CliRunner

from simulations.benchmarks.device import app


def test_every_measurement_is_made_and_written(tmp_path: Path) -> None:
    asked = ["--device", "cpu", "--batch", "16", "--model", "Adult MLP", "--stack", "1", "--stack", "3", "--steps", "2",
             "--repeats", "1", "--out", str(tmp_path / "figures.json")]
    made = CliRunner().invoke(app, asked)
    assert made.exit_code == 0, made.output
    written = json.loads((tmp_path / "figures.json").read_text())
    assert {(row["what"], row["way"]) for row in written["figures"]} == {
        *(("Adult MLP, batch 16", way) for way in ("SGD", "fedfair", "fedfair probe", "Opacus hooks", "Opacus ghost")),
        *((f"noise on {what}", f"drawn {where}") for what in ("the Adult MLP", "450,000 numbers")
          for where in ("by the processor", "on the device")),
        ("clipped gradients, each", "1 models"), ("clipped gradients, each", "3 models"),
        ("dpsgd-f on digits, 2 steps", "cpu")}
    assert all(0 < row["ms"] < math.inf and 0 < row["times"] < math.inf for row in written["figures"])
    assert written["targets"] == []
