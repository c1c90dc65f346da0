"""Files that replace another one as a whole: never a device or a pipe, which others use."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from simulations.files.atomic_files import refuse_as_file, refuse_unwritable, write_text
from tests.for_each import for_each


def test_a_pipe_is_refused_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is no plain file, but a device or a pipe"):
        refuse_as_file(pipe)
    with pytest.raises(FileExistsError, match="is no plain file"):
        write_text(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [*tmp_path.iterdir()] == [pipe]


@for_each("ledger", [{"files": {"model.safetensors": []}}, {"dpsgd/seed-0": {"files": {"model.safetensors": []}}}])
def test_a_file_of_a_result_is_not_replaced(tmp_path: Path, ledger: dict[str, Any]) -> None:
    for name in ("model.safetensors", "report.html", "predicted.csv", "ledger.json"):
        (tmp_path / name).write_text(json.dumps(ledger), encoding="utf-8")
    for name in ("model.safetensors", "ledger.json"):
        with pytest.raises(FileExistsError, match=f"{name} is a file of the result in .*: name another file"):
            refuse_as_file(tmp_path / name)
    for name in ("report.html", "predicted.csv", "more.csv"):
        refuse_as_file(tmp_path / name)


def test_the_file_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age\n7\n", encoding="utf-8")
    (tmp_path / "same.csv").symlink_to(tmp_path / "new.csv")
    for read in ("new.csv", "same.csv"):
        with pytest.raises(FileExistsError, match=r"new\.csv is the file that is read"):
            refuse_as_file(tmp_path / "new.csv", tmp_path / read)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder of the system's that takes no file")
def test_what_permissions_allow_but_the_system_does_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=r"nothing may be changed in /proc \("):
        refuse_unwritable(Path("/proc/new/folder"))
    refuse_unwritable(tmp_path / "new" / "folder")
    assert [*tmp_path.iterdir()] == []
