"""Data in memory: they become a file that every process reads, and nobody else."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.files import in_memory
from fedfair.datasets.files.chunks import chunks_of
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment

ROWS = 60


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the files of a test in its own folder."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path


def people() -> pd.DataFrame:
    draws = np.random.default_rng(0)
    return pd.DataFrame({"age": draws.integers(18, 90, ROWS), "town": draws.choice(["x", "y"], ROWS),
                         "sex": draws.choice(["f", "m"], ROWS), "good": draws.integers(0, 2, ROWS)})


def test_a_table_in_memory_is_the_same_as_in_a_file(cache: Path) -> None:
    people().to_csv(cache / "own.csv", index=False)
    file = Task(csv=str(cache / "own.csv"), label="good", group="sex").data()
    made = Experiment(csv=people(), label="good", group="sex")
    assert torch.equal(made.task.data().train.x, file.train.x)
    assert made.task.data().train.columns == file.train.columns
    assert Task.model_validate_json(made.task.text).data().train.x.equal(file.train.x)  # as another process does
    assert Experiment(csv=people(), label="good", group="sex").csv == made.csv
    assert stat.S_IMODE(Path(str(made.csv)).stat().st_mode) == 0o600


def test_arrays_and_torch_data_sets_are_tables() -> None:
    x, y, group = torch.arange(120.0).view(ROWS, 2), torch.arange(ROWS) % 2, torch.arange(ROWS) % 3
    frame = in_memory.frame_of_dataset(TensorDataset(x, y, group))
    pd.testing.assert_frame_equal(frame, in_memory.frame_of(x.numpy(), y.numpy(), group.numpy()))
    data = Task(csv=frame, label="label", group="group").data().train
    assert data.columns[:2] == ("x0", "x1")
    assert data.names == ("0", "1", "2")


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match="give x as"):
        in_memory.frame_of(np.zeros((3, 2, 2)), [0, 1, 1], [0, 1, 1])
    with pytest.raises(ValueError, match=r"an example is not \(features, label, group\)"):
        in_memory.frame_of_dataset(TensorDataset(torch.zeros(3, 2), torch.zeros(3)))
    with pytest.raises(ValueError, match="make the values of each column of one kind"):
        in_memory.written(pd.DataFrame({"a": [1j, 2j]}))


CELLS: list[Any] = [5, 2.0, 2.5, True, "x", "\ud800", b"\xff", [1], {"a": 1}, {1}, object(), 2**70, Decimal("1.5"),
                    np.array([1, 2]), 1j, pd.Timestamp("2020-01-01 03:04"), date(2020, 1, 1), None]


@pytest.mark.parametrize("others", [["a", "b"], [1, 2**60 + 1], [1.0, 2.5], [pd.Timestamp("2020-01-01")] * 2,
                                    [b"a", b"b"], [Decimal("1.50"), Decimal(2)], [True, False]])
def test_a_cell_of_another_kind_changes_no_other(others: list[Any]) -> None:
    """Nor whether the table can be written."""
    read = []
    for cell in (others[0], *CELLS):
        column = pd.Series([cell, *others], dtype=object)
        table = chunks_of(in_memory.written(pd.DataFrame({"n": column, "c": column, "y": "yes"})))
        frame, _ = kept_table(table, reading_as_asked(Asked()), "y", ("n",), ("c", "y"))
        read.append((frame["n"].tolist()[1:], frame["c"].astype(str).tolist()[1:]))
    names = {tuple(names) for _, names in read}
    assert len(names) == 1
    if not isinstance(others[0], pd.Timestamp | bool):  # which are numbers by their type alone
        assert all(np.array_equal(numbers, read[0][0], equal_nan=True) for numbers, _ in read)


def test_what_a_killed_program_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """But not what belongs to a program that runs, or to another machine."""
    tables = tmp_path / "fedfair" / "tables"
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    names = [f"{platform.node()}-{killed.pid}-a", f"{platform.node()}-{os.getpid()}-b", f"other-{killed.pid}-c"]
    for name in names:
        (tables / name).mkdir(parents=True)
        (tables / name / in_memory.FILE).touch()
    own = in_memory.written(people().assign(alone=1))
    assert {folder.name for folder in tables.iterdir()} == {*names[1:], own.parent.name}
    assert own in in_memory.files_of_this_process()
