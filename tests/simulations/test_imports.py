"""A process that only answers for clients, or only prints help, does not import slow libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("dp_accounting", "matplotlib", "opacus", "ray", "scipy.optimize", "scipy.signal", "scipy.stats", "sklearn",
        "torch._dynamo")


@pytest.mark.parametrize(("module", "more"), [("fedfair.client_app", ("pandas", "scipy")), ("simulations.cli", ())])
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
