"""The cases from public reports in the shared folder, each of which says by its exit code whether it holds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import SHARED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted(run.parent for folder in ("cases", "new-cases") for run in (SHARED / folder).glob("*/run.sh"))
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_holds(case: Path, tmp_path: Path, forked: Path) -> None:
    environment = {**os.environ, "FEDFAIR": "fedfair", "PYTHONPATH": str(ROOT),
                   "PATH": f"{forked}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", renamed(case, tmp_path / case.name) / "run.sh"], capture_output=True, check=False,
                          text=True, env=environment)
    output = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in output) == (0, False), output
