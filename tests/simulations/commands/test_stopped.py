"""A person who stops a command by Ctrl-C reads what is kept, and how to go on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from simulations.cli import app
from simulations.commands.running import _kept


def _stop(*given: object, **named: object) -> NoReturn:
    """Take the place of work that a person stops."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("work", "arguments", "said"), [
    ("simulations.engines.run.run", ["run"], "Stopped: nothing is kept; with --out, a run can go on"),
    ("simulations.engines.run.run", ["run", "--out", "out"], "Stopped: no round is kept in out"),
    ("simulations.fitting.fit.fit", ["fit", "rows.csv", "--label", "y", "--group", "sex", "--out", "out"],
     "Stopped: nothing is kept, and nothing of the records was written")])
def test_a_command_that_is_stopped_says_what_is_kept(work: str, arguments: list[str], said: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, _stop)
    pd.DataFrame({"y": [0, 1], "sex": ["f", "m"]}).to_csv("rows.csv", index=False)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 130
    assert said in " ".join(result.stderr.split())
    assert not Path("out").exists()


def test_where_nobody_reads_any_more_a_command_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Console.print

    def write(console: Console, *given: Any, **named: Any) -> None:
        """Print into a pipe that is closed, or to a person."""
        if not console.stderr:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        real(console, *given, **named)

    monkeypatch.setattr(Console, "print", write)
    result = CliRunner().invoke(app, ["methods"])
    assert (result.exit_code, result.output) == (1, "")


def test_a_checkpoint_is_said_to_be_kept(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").touch()
    assert f"{tmp_path} keeps a checkpoint" in _kept(tmp_path)
