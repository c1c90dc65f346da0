"""Independent work in several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulations.engines.worker_processes import in_processes
from tests.guard import wait_until


def fail_at_first(path: Path) -> None:
    time.sleep(0.01)
    path.touch()
    if path.name == "0":
        raise ValueError("the first one fails")


@pytest.mark.slow
def test_what_is_left_is_not_begun_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the first one fails"):
        list(in_processes(fail_at_first, [tmp_path / str(number) for number in range(1000)], 1))
    assert 1 <= len(list(tmp_path.iterdir())) < 1000


PARENT = """
import sys
from pathlib import Path
from simulations.engines.worker_processes import in_processes
from tests.simulations.engines.test_worker_processes import note_and_wait
if __name__ == "__main__":
    list(in_processes(note_and_wait, [Path(sys.argv[1])], 1))
"""


def note_and_wait(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(10**6)  # for ever: whoever waits for its end is ended by the guard of all tests




def ended(process: str) -> bool:
    """Return whether a process is gone, or only waits for its new parent to take note."""
    try:
        return ") Z " in (Path("/proc") / process / "stat").read_text()
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, signal_: signal.Signals) -> None:
    script, noted = tmp_path / "parent.py", tmp_path / "process"
    script.write_text(PARENT)
    paths = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen([sys.executable, script, noted], env={**os.environ, "PYTHONPATH": paths}) as parent:
        wait_until(lambda: noted.is_file() and noted.read_text() != "", parent)
        parent.send_signal(signal_)
    wait_until(lambda: ended(noted.read_text()))


INTERRUPTED = """
import signal
import sys
from pathlib import Path
from simulations.engines.worker_processes import in_processes
from tests.simulations.engines.test_worker_processes import note_and_wait
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    list(in_processes(note_and_wait, [Path(sys.argv[1]) / str(number) for number in range(8)], 2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [False, True])
def test_an_interrupt_ends_all_processes_at_once(tmp_path: Path, to_all: bool) -> None:
    script, folder = tmp_path / "parent.py", tmp_path / "noted"
    script.write_text(INTERRUPTED)
    folder.mkdir()
    paths = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen([sys.executable, script, folder], env={**os.environ, "PYTHONPATH": paths},
                          stderr=subprocess.DEVNULL, start_new_session=True) as parent:
        try:
            wait_until(lambda: sum(file.read_text() != "" for file in folder.iterdir()) == 2, parent)
            (os.killpg if to_all else os.kill)(parent.pid, signal.SIGINT)
            assert parent.wait() != 0
            assert len(list(folder.iterdir())) == 2
            wait_until(lambda: all(ended(file.read_text()) for file in folder.iterdir()))
        finally:
            if parent.poll() is None:
                os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.slow
def test_every_item_has_its_own_result() -> None:
    assert dict(in_processes(abs, [-3, 2, -1], 2)) == {0: 3, 1: 2, 2: 1}
