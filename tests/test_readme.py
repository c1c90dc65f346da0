"""What the README promises is tested."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from simulations import Experiment, run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    command = 'pip install -c constraints.txt ".[test]" && pytest'
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.slow
def test_the_readmes_command_prints_the_readmes_table() -> None:
    _, _, command = README.partition(" . && fedfair ")
    arguments, shown = command.partition("```text\n")[::2]
    code = "import sys\nfrom simulations.cli import app\nsys.argv[0] = 'fedfair'\napp()"
    done = subprocess.run([sys.executable, "-c", code, *shlex.split(arguments.splitlines()[0])], cwd=ROOT,
                          capture_output=True, text=True, check=True)
    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    for part in shown.partition("```")[0].split("...\n"):
        _, found, printed = printed.partition(part)
        assert found, part


def test_the_readmes_strategy_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "quantile_clip.py").write_text(next(block for block in blocks if "class QuantileClip" in block))
    monkeypatch.chdir(tmp_path)
    result = run(Experiment(strategy="quantile-clip", hidden=(8,), epochs=2, options={"quantile": 0.7}))
    assert result.ledger.guarantee == "simulated"
    assert result.metrics["value"].notna().any()


def test_the_readmes_script_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    block = next(b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "result.ledger" in b)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block.replace("epochs=60", "epochs=2"), names)  # noqa: S102 - the README's own code
    assert isinstance(names["result"].model, torch.nn.Module)  # type: ignore[attr-defined]


def test_constraints_hold_names_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line), line
