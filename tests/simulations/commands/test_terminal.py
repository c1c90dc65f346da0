"""What a user or a script sees on the terminal."""

from __future__ import annotations

import errno
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedfair.accounting import Event, Ledger
from fedfair.fairness.intervals import Estimate
from simulations.cli import app
from simulations.drawing.table import Table, terminal
from simulations.files.atomic_files import in_json
from simulations.results.ledger_table import ledger_table
from simulations.results.run_folder import RunFolder
from tests.for_each import for_each

QUICK = ["--set", "epochs=1", "--set", "hidden=[8]"]


def test_json_is_all_that_a_script_reads_and_is_valid_where_epsilon_is_infinite(tmp_path) -> None:
    result = CliRunner().invoke(app, ["compare", "--strategies", "sgd,dpsgd", "--seeds", "1", "--jobs", "1", "--json",
                                      *QUICK, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [row["strategy"] for row in values["summary"]] == ["sgd", "dpsgd"]
    assert (values["summary"][0]["epsilon"], values["summary"][0]["guarantee"]) == (None, "none")
    assert values["summary"][1]["epsilon"] > 0
    assert values["folder"] == str(tmp_path / "out")
    ledgers = json.loads((tmp_path / "out" / "ledger.json").read_text(), parse_constant=pytest.fail)
    assert [ledger["epsilon"] is None for ledger in ledgers.values()] == [True, False]
    assert [ledger.epsilon() == math.inf for ledger in RunFolder(tmp_path / "out").ledgers.values()] == [True, False]
    one = CliRunner().invoke(app, ["run", "--strategy", "dpsgd", "--json", *QUICK])
    assert json.loads(one.stdout)["folder"] is None


def test_a_ledger_survives_json_also_where_nothing_was_released_of_a_group() -> None:
    ledger = Ledger(("a", "b"), 1e-6)
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, math.inf)), 3)
    again = Ledger.from_dict(json.loads(in_json(ledger.to_dict()), parse_constant=pytest.fail))
    assert again.events == ledger.events
    assert again.epsilon_by_group() == ledger.epsilon_by_group()
    assert again.epsilon_by_group()["b"] == 0


def test_the_help_of_reproduce_says_what_can_be_reproduced() -> None:
    said = CliRunner().invoke(app, ["reproduce", "--help"])
    assert all(name in said.output for name in ("fair-fight", "yang2024-table1", "xu2021-figures1-3"))


def test_risk_terms_are_an_option_of_any_run(tmp_path) -> None:
    steps, risk = ["--set", "steps=4", "--set", "hidden=[8]"], ["--risk", "every=2", "--risk", "vectors=3"]
    several = ["compare", "--strategies", "sgd,dpsgd", "--seeds", "1", "--jobs", "1"]
    for command in (["run", "--strategy", "dpsgd"], several):
        out = tmp_path / command[0]
        said = CliRunner().invoke(app, [*command, *steps, *risk, "--out", str(out)])
        assert said.exit_code == 0, said.output
        metrics = pd.read_parquet(out / "metrics.parquet")
        assert set(metrics.loc[metrics["metric"] == "risk_direction", "round"]) == {1, 3}
    wrong = CliRunner().invoke(app, ["run", *steps, "--risk", "often=2"])
    assert wrong.exit_code == 2
    assert "risk_often" in wrong.output


def commands(group: typer.Typer, *path: str) -> list[tuple[str, ...]]:
    """Return the paths of all commands."""
    own = [(*path, (command.name or command.callback.__name__).replace("_", "-")) for command in
           group.registered_commands]
    return own + [found for sub in group.registered_groups for found in commands(sub.typer_instance, *path, sub.name)]


@for_each("path", commands(app))
def test_every_command_teaches_by_an_example(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"]).stdout
    assert f"Example: fedfair {' '.join(path)}" in " ".join(shown.split())


@for_each("path", commands(app))
def test_every_command_says_what_its_arguments_and_options_are(path: tuple[str, ...]) -> None:
    """With click 8.5 typer 0.20, the last that flwr takes, loses the arguments' help: see pyproject.toml."""
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    assert [parameter.name for parameter in command.params if not parameter.help] == []


@for_each(("typed", "expected"), [
    ("run --strategy dpsgd-g", ["dpsgd-global", "dpsgd-global-adapt"]), ("run --dataset co", ["compas"]),
    ("compare --strategies sgd,fairl", ["sgd,fairlens"]), ("compare --preset ya", ["yang2024"]),
    ("compare --engine l", ["local"])])
def test_the_shell_completes_names(typed: str, expected: list[str]) -> None:
    words = f"fedfair {typed}"
    result = CliRunner().invoke(app, [], prog_name="fedfair", env={
        "_FEDFAIR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)})
    assert result.stdout.split() == expected


def test_the_exit_codes_are_told() -> None:
    assert "Exit codes" in CliRunner().invoke(app, ["--help"]).stdout


def test_a_ledger_of_many_groups_fits_80_columns() -> None:
    names = [f"a group with a long name {number}" for number in range(12)]
    ledger = Ledger(names, 1e-5)
    ledger.record(Event((0.1,) * 12, (1.0,) * 12, (2.0,) * 12), 10)
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ledger_table(ledger))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line.split("name")[-1] for line in lines if "against" in line)
    assert f"{ledger.epsilon():.3f}" in "\n".join(lines)


def test_a_table_of_many_intervals_keeps_the_names_of_its_rows_at_80_characters() -> None:
    """Intervals beside their figures left no room for names of groups."""
    row = [Estimate(0.5, 0.412, 0.588)] * 4
    table = Table("", "figures", ("group", *("selection rate",) * 4), [("women", *row), ("men", *row)])
    with (console := Console(width=80)).capture() as printed:
        console.print(terminal(table))
    lines = printed.get().splitlines()
    assert [line.split()[1] for line in lines if "0.500" in line] == ["women", "men"]
    assert sum(line.count("0.412 to 0.588") for line in lines) == 8
    assert "…" not in printed.get()


@pytest.mark.parametrize("arguments", [["fit", "people.csv", "--label", "hired", "--group", "sex", "--out", "new"],
                                       ["run", "--dataset", "digits", *QUICK, "--out", "new"]])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(arguments: list[str], tmp_path: Path) -> None:
    """A limit on the size of a file stands for the end of the disk."""
    draws = np.random.default_rng(0)
    pd.DataFrame({"age": draws.integers(18, 80, 300), "sex": draws.choice(["f", "m"], 300),
                  "hired": draws.choice(["no", "yes"], 300)}).to_csv(tmp_path / "people.csv", index=False)
    program = ("import resource\nfrom simulations.cli import app\n"
               "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\napp()")
    done = subprocess.run([sys.executable, "-B", "-c", program, *arguments], cwd=tmp_path, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "there is no room" in done.stderr or "is the disk full?" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_a_file_of_tensors_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    program = ("import resource, torch\nfrom pathlib import Path\n"
               "from simulations.files.saved_files import save_tensors\n"
               "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
               "try:\n    save_tensors({'a': torch.zeros(9999)}, Path('a.safetensors'))\n"
               "except OSError as error:\n    print(error.errno)")
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.stdout == f"{errno.EFBIG}\n", done.stderr
