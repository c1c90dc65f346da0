"""Programs that are forked are what they are when they are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SEEN = ("import os, sys; print(os.getcwd(), sys.argv, sys.path[:2], os.environ.get('OWN'), sys.stdin.read(), "
        "sorted({name.partition('.')[0] for name in sys.modules} & {'fedfair', 'flwr', 'simulations'}), __name__)")


def test_a_program_has_its_words_folder_environment_path_and_streams(forked: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OWN": "1", "PYTHONPATH": "/somewhere"}
    said = [subprocess.run([python, "-c", SEEN, "a", "b c"], cwd=tmp_path, env=environment, input="typed", text=True,
                           capture_output=True, check=True).stdout for python in (sys.executable, forked / "python")]
    assert said[0] == said[1]
    assert "typed [] __main__" in said[1]


@pytest.mark.parametrize(("program", "code"), [
    ("pass", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('no')", 1), ("1 / 0", 1),
    ("import os; os.kill(os.getpid(), 9)", -9)])
def test_it_ends_as_it_ends(program: str, code: int, forked: Path) -> None:
    done = [subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
            for python in (sys.executable, forked / "python")]
    assert [each.returncode for each in done] == [code] * 2
    assert done[0].stderr.splitlines()[-1:] == done[1].stderr.splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_it(number: signal.Signals, forked: Path) -> None:
    program = "import time; print('there', flush=True); time.sleep(10**6)"
    with subprocess.Popen([forked / "python", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == "there\n"
        begun.send_signal(number)
        said, told = begun.communicate()  # which waits until nobody can write any more
    assert said == ""
    assert (begun.returncode, "KeyboardInterrupt" in told) == (-number, number == signal.SIGINT)


def test_what_python_reads_as_it_begins_is_read(forked: Path) -> None:
    program = "import sys; print(sys.flags.utf8_mode)"
    for mode in ("0", "1"):
        done = subprocess.run([forked / "python", "-c", program], env={**os.environ, "PYTHONUTF8": mode}, check=True,
                              capture_output=True, text=True)
        assert done.stdout == f"{mode}\n"
