"""A project with packages `strategies` and `simulations` of its own works, whichever is imported first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OWN = "from strategies import MINE\nfrom strategies.mine import make\nassert make() == MINE == 3\n"
FEDFAIR = """from fedfair import PrivateTraining
from strategies import Strategy, find_strategy
from simulations import Experiment, run
from simulations.server_app import app
assert issubclass(find_strategy("dpsgd"), Strategy)
assert run(Experiment(strategy="dpsgd", steps=1, batch_size=32, hidden=(4,))).ledger.epsilon() > 0
"""
METHOD = """from strategies import Strategy
from fedfair.mechanisms.clipping import Flat
class Half(Strategy):
    def rule(self):
        return Flat(0.5)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write a project that has such packages."""
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies/__init__.py").write_text("from .mine import make\n\nMINE = make()\n")
    (tmp_path / "strategies/mine.py").write_text("def make():\n    return 3\n")
    (tmp_path / "strategies/half.py").write_text(METHOD)
    (tmp_path / "simulations").mkdir()
    (tmp_path / "simulations/other.py").write_text("OTHER = 1\n")
    return tmp_path


def ran(python: Path, project: Path, program: str) -> str:
    """Run a program of the project as Flower does, with the project first among Python's folders."""
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run([python, "-c", program], cwd=project, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), root])})
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("program", [
    OWN + FEDFAIR + OWN, FEDFAIR + OWN, "import fedfair\n" + OWN + FEDFAIR,
    "import fedfair\nfrom simulations.other import OTHER\nfrom simulations.engines.run import run\n",
    "import fedfair\nfrom strategies import find_strategy\nassert find_strategy('half').__name__ == 'Half'\n",
    "import fedfair, strategies\nassert not hasattr(strategies, 'nothing')\n"])
def test_both_packages_of_one_name_can_be_used(program: str, project: Path, forked: Path) -> None:
    assert ran(forked / "python", project, program) == ""


def test_where_there_is_none_nothing_is_changed(tmp_path: Path) -> None:
    program = "import sys, fedfair\nassert not any('shared_names' in type(f).__module__ for f in sys.meta_path)\n"
    root = str(Path(__file__).resolve().parents[3])
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True,
                   env={**os.environ, "PYTHONPATH": root})
