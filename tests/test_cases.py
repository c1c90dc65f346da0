"""The cases and attacks in the shared folder, each of which says by its exit code whether the program holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted(run.parent for folder in ("cases", "new-cases") for run in (SHARED / folder).glob("*/run.sh"))
ATTACKS = sorted(script for script in (SHARED / "attacks").glob("*.py") if script.name != "_harness.py")
MOVED = {"from fedfair.gradients import per_example": "from fedfair.gradients.probe import per_example",
         "from fedfair.models import loss": "from fedfair.models.published import loss",
         "from simulations.fitting.folder import": "from simulations.fitting.save import",
         # a deal that is no more: that of today is attacked in tests/hazards/test_dealing_attack.py
         "from fedfair.datasets.prepare import _shuffled": "_shuffled = lambda rows, *_: torch.randperm(rows).numpy()"}

SHORTER = {"split_label": ["12"]}
"""Arguments of attacks: the fits a side that refute a deal which one row moves; test_dealing_attack.py makes 200."""
TIMEOUT = """#!{python}
import os, signal, subprocess, sys, time
import psutil

words = sys.argv[1:]
ends = signal.Signals["SIG" + words[1]] if words[0] == "-s" else signal.SIGTERM
seconds, *command = words[2:] if words[0] == "-s" else words
os.environ["PATH"] = os.environ["PATH"].replace({forked!r} + os.pathsep, "")  # forked programs are not this one's
late, begun = False, psutil.Popen(command)
while begun.poll() is None:
    time.sleep(0.05)
    try:
        late = late or sum(begun.cpu_times()[:4]) > float(seconds) and begun.send_signal(ends) is None
    except psutil.Error:
        pass
sys.exit(124 if late else begun.returncode)
"""
"""The program `timeout`, by the processor time of what it starts: on a busy machine a case is no other one."""


@pytest.fixture(scope="module")
def programs(forked: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return folders of programs, for the `PATH`: those that begin at once, and `timeout`."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "timeout").write_text(TIMEOUT.format(python=sys.executable, forked=str(forked)))
    (folder / "timeout").chmod(0o755)
    return f"{folder}:{forked}"


def renamed(case: Path, to: Path) -> Path:
    """Return a folder of a case or of attacks, copied where its Python files import modules by earlier names."""
    if not list(case.glob("*.py")):
        return case
    to.mkdir()
    for file in (file for file in case.iterdir() if file.is_file()):
        text = file.read_text()
        for before, now in MOVED.items():
            text = text.replace(before, now)
        (to / file.name).write_text(text)
    return to


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_holds(case: Path, tmp_path: Path, programs: str) -> None:
    environment = {**os.environ, "FEDFAIR": "fedfair", "PYTHONPATH": str(ROOT),
                   "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", renamed(case, tmp_path / case.name) / "run.sh"], capture_output=True, check=False,
                          text=True, env=environment)
    output = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in output) == (0, False), output


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.stem)
def test_an_attack_refutes_nothing(attack: Path, tmp_path: Path) -> None:
    script = renamed(attack.parent, tmp_path / "attacks") / attack.name
    done = subprocess.run([sys.executable, script, *SHORTER.get(attack.stem, [])], capture_output=True, check=False,
                          text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT),
                                                        "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["not refuted"]), done.stdout + done.stderr
