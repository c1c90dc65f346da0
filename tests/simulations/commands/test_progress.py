"""How far a command is, where no terminal shows a bar."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.datasets.files.estimate import WHOLE, announce
from simulations.cli import app
from simulations.commands.terminal import _Lines, progress_lines, showing_progress

QUICK = ["--set", "steps=3", "--set", "hidden=[8]"]


def test_each_finished_run_has_a_line_and_rounds_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_lines() as on_round:
        for run in range(3):
            for round_ in range(1, 101):
                on_round(run, 3, f"dpsgd, seed {run}", round_, 100)
    assert re.sub(r"\d+ s", "0 s", capsys.readouterr().err).splitlines() == [
        "dpsgd, seed 0: 33 % of 3 runs, 0 s so far, about 0 s left",
        "dpsgd, seed 1: 67 % of 3 runs, 0 s so far, about 0 s left",
        "dpsgd, seed 2: 100 % of 3 runs, done in 0 s"]


def heard(capsys: pytest.CaptureFixture[str], begins: str, number: int) -> list[str]:
    """Wait for so many lines that begin so, and return all that came."""
    lines: list[str] = []
    for _ in range(6_000):
        lines += capsys.readouterr().err.splitlines()
        if sum(line.startswith(begins) for line in lines) >= number:
            return lines
        time.sleep(0.01)
    raise AssertionError(f"{number} lines that begin with {begins} did not come: {lines}")


def test_a_line_comes_now_and_then_even_while_nothing_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_lines(every=0.05) as on_round:
        lines = heard(capsys, "preparing", 2)
        on_round(0, 1, "dpsgd\x1b[2J, seed 0", 30, 100)
        lines += heard(capsys, "dpsgd", 1)
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""
    assert lines[0] == "preparing: reads the records, makes their features and starts the nodes, 0 s so far"
    assert re.match(r"dpsgd\S+, seed 0: 30 %, \d+ s so far, about \d+ s left", lines[-1])
    assert "\x1b" not in "".join(lines)


def test_the_time_left_of_a_resumed_run_is_that_of_what_is_missing(capsys: pytest.CaptureFixture[str],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("simulations.commands.terminal.monotonic", lambda: now[0])
    with progress_lines() as on_round:
        on_round(0, 2, "dpsgd", 51, 100)
        now[0] = 50.0
        on_round(0, 2, "dpsgd", 100, 100)
    assert capsys.readouterr().err == "dpsgd: 50 % of 2 runs, 50 s so far, about 2 min left\n"


def test_a_reader_that_goes_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as raw, monkeypatch.context() as until:
        until.setattr(sys, "stderr", io.TextIOWrapper(raw, write_through=True))
        with pytest.raises(BrokenPipeError):
            print("nobody reads this", file=sys.stderr, flush=True)
        with progress_lines() as on_round:
            on_round(0, 1, "dpsgd", 1, 1)


@pytest.mark.parametrize(("words", "told"), [  # four runs take their three steps together
    (["run", "--strategy", "dpsgd"], 1), (["compare", "--strategies", "sgd,dpsgd", "--seeds", "2", "--jobs", "1"], 3),
    (["curve", "--dataset", "digits", "--preset", "digits", "--strategies", "dpsgd", "--over",
      "dpsgd.learning_rate=[0.1,0.2]"], 2)])
def test_commands_tell_a_file_how_far_they_are(words: list[str], told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.commands.terminal.monotonic", lambda: 0.0)  # every ten seconds bring one line more
    said = CliRunner().invoke(app, [*words, *QUICK])
    assert said.exit_code == 0, said.output
    lines = [line for line in said.stderr.splitlines() if " %" in line]
    assert len(lines) == told
    assert "100 %" in lines[-1]
    assert " %;" not in said.stdout


def test_while_nothing_is_heard_a_line_is_due_after_twenty_seconds_at_most() -> None:
    lines = _Lines("reading")
    lines.start, lines.told = 0.0, 10_000.0
    assert lines.due(10.0) == 10_020.0
    lines.on_round(0, 1, "dpsgd", 1, 100)
    assert lines.due(10.0) == 11_000.0


def test_what_is_read_is_said_once_and_by_commands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "people.csv"
    file.write_text("years,hired\n41,yes\n")
    level = logging.getLogger("fedfair.datasets").level
    with showing_progress():
        announce(file, [file], WHOLE, least=0, free=1e18)
        announce(file, [file], WHOLE, least=0, free=1e18)
    announce(file, [file], WHOLE, least=0, free=1e18)
    assert "".join(capsys.readouterr().err.split("\n")) == (
        f"{file} is read: 0 MB of text in 2 columns; that takes about 10 seconds")
    assert logging.getLogger("fedfair.datasets").level == level


@pytest.mark.parametrize("command", [["fit"], ["data", "check"], ["data", "schema"], ["run", "--csv"],
                                     ["compare", "--csv"]], ids=" ".join)
def test_every_command_that_reads_a_large_file_says_so_before_it_does(command: list[str], tmp_path: Path) -> None:
    """The file takes no room on the disk, and is broken in its first line: what is said before that is seen."""
    file = tmp_path / "people.csv"
    with file.open("wb") as stream:
        stream.write(b"sex,\xff\xfe,hired\n")
        stream.truncate(4 * 10**9)
    said = CliRunner().invoke(app, [*command, str(file), "--label", "hired", "--group", "sex"])
    assert said.exit_code == 2
    announced, refused = said.stderr.index("is read: 4.0 GB of text in 3 columns"), said.stderr.index("is not text")
    assert announced < refused
    assert said.stderr.count("is read: 4.0 GB") == 1
