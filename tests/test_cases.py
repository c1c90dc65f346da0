"""The cases from public reports in the shared folder, each of which says by its exit code whether it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.simulations.engines.runtime import ONE_AT_A_TIME

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted(run.parent for run in (SHARED / "cases").glob("*/run.sh"))
PROGRAM = f"""#!{sys.executable}
from simulations.cli import app

if __name__ == "__main__":
    app()
"""
MOVED = {"from fedfair.gradients import per_example": "from fedfair.gradients.probe import per_example",
         "from fedfair.models import loss": "from fedfair.models.published import loss"}


def renamed(case: Path, to: Path) -> Path:
    """Return a case's folder, copied where its own Python files import modules by earlier names."""
    if not list(case.glob("*.py")):
        return case
    to.mkdir()
    for file in case.iterdir():
        text = file.read_text()
        for before, now in MOVED.items():
            text = text.replace(before, now)
        (to / file.name).write_text(text)
    return to


def is_hurried(case: Path) -> bool:
    """Return whether a case gives a program so many seconds, which it may not keep to beside Flower's processes."""
    return "timeout" in (case / "run.sh").read_text()


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=ONE_AT_A_TIME if is_hurried(case) else ()) for case in CASES])
def test_a_case_holds(case: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fedfair"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    environment = {**os.environ, "FEDFAIR": "fedfair", "PYTHONPATH": str(ROOT),
                   "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", renamed(case, tmp_path / case.name) / "run.sh"], capture_output=True, check=False,
                          text=True, env=environment)
    output = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in output) == (0, False), output
