"""A process that only answers for clients, or only prints help, does not import slow libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("dp_accounting", "matplotlib", "opacus", "ray", "scipy.optimize", "scipy.signal", "scipy.stats", "sklearn",
        "torch._dynamo")


@pytest.mark.parametrize(("module", "more"), [("fedfair.client_app", ("pandas", "scipy")),
                                              ("simulations.cli", ("flwr", "pandas", "scipy", "torch"))])
def test_a_process_starts_without_what_it_may_never_need(module: str, more: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {SLOW + more} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_on_digits_starts_neither_pytorchs_compiler_nor_scikit_learn() -> None:
    code = """
import sys
from simulations import Experiment, run
for optimizer in ("sgd", "adam", "rmsprop"):
    run(Experiment(split=(0.2, 0.0, 0.8), hidden=(4,), steps=2, batch_size=32, optimizer=optimizer))
print([name for name in ("torch._dynamo", "sklearn") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_and_completion_do_without_what_takes_seconds() -> None:
    code = """
import os, sys
from typer.testing import CliRunner
from simulations.cli import app
found = []
for typed in ("", "run --dataset co", "compare --strategies sgd,fair", "run --engine l", "run --preset ya",
              "settings cl", "run --set cl"):
    words = f"fedfair {typed}"
    os.environ.update(_FEDFAIR_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    done = CliRunner().invoke(app, [], prog_name="fedfair")
    assert done.stdout.split(), (typed, done)
    del os.environ["_FEDFAIR_COMPLETE"]
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    found += [(typed, name) for name in ("torch", "flwr", "pandas", "scipy", "ray") if name in sys.modules]
print(found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
