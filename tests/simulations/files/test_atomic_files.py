"""Files that replace another one as a whole: never a device or a pipe, which others use."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from simulations.files.atomic_files import refuse_as_file, refuse_unwritable, write_text


def test_a_pipe_is_refused_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is no plain file, but a device or a pipe"):
        refuse_as_file(pipe)
    with pytest.raises(FileExistsError, match="is no plain file"):
        write_text(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [*tmp_path.iterdir()] == [pipe]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder of the system's that takes no file")
def test_what_permissions_allow_but_the_system_does_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=r"nothing may be changed in /proc \("):
        refuse_unwritable(Path("/proc/new/folder"))
    refuse_unwritable(tmp_path / "new" / "folder")
    assert [*tmp_path.iterdir()] == []
