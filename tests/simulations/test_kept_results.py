"""Pages of docs/results whose runs are kept beside them are what those runs give today."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from simulations.reproductions.request import Request
from simulations.reproductions.tables import reproduce

RESULTS = Path(__file__).parents[2] / "docs" / "results"
WRITTEN = ("README.md", "cells.csv", "statistics.csv")


@pytest.mark.parametrize("name", sorted(folder.parent.name for folder in RESULTS.glob("*/runs")))
def test_a_page_is_what_its_runs_give(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.reproductions.store.run", lambda *_, **__: pytest.fail("a run is not there"))
    folder = shutil.copytree(RESULTS / name, tmp_path / name)
    seeds = re.search(rf"fedfair reproduce {name} --seeds (\d+) ", (folder / "README.md").read_text())
    assert seeds
    for file in WRITTEN:
        (folder / file).unlink()
    reproduce(name, folder, Request(seeds=int(seeds[1])))
    for file in WRITTEN:
        assert (folder / file).read_text() == (RESULTS / name / file).read_text()
