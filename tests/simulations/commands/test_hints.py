"""The settings that an error names, as options that can be given as they are."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.commands.words import as_options
from tests.for_each import for_each


@for_each(("sentence", "options"), [
    ('is missing: give missing = "drop"', ["--missing", "drop"]),
    ('without = ["a b"]; column c: without = ["c, d"]', ["--without", 'a b,"c, d"']),
    ('give missing_marks = ["-999"], or missing_marks = [] if it is a number', ["--set", 'missing_marks=["-999"]']),
    ('capitals = "same" if they are the same, or capitals = "different"', ["--set", "capitals=same"]),
    ("give bands = [43, 66]", ["--set", "bands=[43, 66]"]),
    ('no = "setting", and nothing at all', []),
    ('a name with a bracket: without = ["]"]', []),
])
def test_settings_become_options_that_a_shell_takes(sentence: str, options: list[str]) -> None:
    assert shlex.split(as_options(sentence)) == options


def test_options_keep_what_the_command_was_given_since_the_last_one_counts(tmp_path: Path) -> None:
    given = {"without": 'a,"b, c"', "set_": ['categorical=["x"]', "capitals=same", "numbers"]}
    advice = 'without = ["d"]; categorical = ["y"], or numbers = ["y"]'
    assert shlex.split(as_options(advice, given)) == ["--without", 'a,"b, c",d', "--set", 'categorical=["x", "y"]',
                                                      "--set", 'numbers=["y"]']
    wrong = {"set_": ["bands=[60, 30]"]}  # numbers are one list, not one name after another
    assert shlex.split(as_options("bands is [60, 30]: give bands = [25, 60]", wrong)) == ["--set", "bands=[25, 60]"]
    file = tmp_path / "own.csv"
    rows = (f"n{each},{each % 900}00000{each}CF,{each % 50},{'fm'[each % 2]},{each % 3 % 2}" for each in range(1200))
    file.write_text("\n".join(["name,no,age,sex,y", *rows]))
    command = ["data", "check", str(file), "--label", "y", "--group", "sex"]
    first = CliRunner().invoke(app, command)
    assert (first.exit_code, "categorical" in first.stderr) == (2, False)  # so many texts are no categories
    options = shlex.split(first.stderr.rpartition("mean: ")[2])
    assert CliRunner().invoke(app, [*command, *options]).exit_code == 0
    again = CliRunner().invoke(app, [*command, "--without", "name"])
    assert shlex.split(again.stderr.rpartition("mean: ")[2]) == ["--without", "name,no"]


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """Write a file as hospitals have them, which nobody prepared."""
    draws = np.random.default_rng(0)
    lines = ["Nr;Aufnahme;Alter;Geschlecht;Kosten;Bemerkung;Wieder da?"]
    for number in range(400):
        age = "-999" if number % 40 == 0 else str(draws.integers(20, 90))
        kind = draws.choice(["F", "M", "f", "M", ""], p=[0.5, 0.3, 0.1, 0.08, 0.02])
        note = f"Akte {number}" if number % 3 == 0 else ""
        lines.append(f"{number * 37:05d};{draws.integers(1, 28):02d}.03.2024;{age};{kind};{draws.integers(1, 9)}."
                     f"{draws.integers(100, 999)},50 €;{note};{draws.choice(['ja', 'nein'])}")
    file = tmp_path / "klinik.csv"
    file.write_bytes("\r\n".join(lines).encode("cp1252"))
    return file


def test_a_messy_file_is_read_after_an_answer_and_the_last_lines_are_commands(messy: Path, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refusal ends with all options that mend it; what is left of a check is the command to go on with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    words = ["data", "check", messy.name, "--label", "Wieder da?", "--group", "Geschlecht"]
    for _ in range(2):
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 2
        words += shlex.split(said.stderr.strip().splitlines()[-1].partition("you mean: ")[2])
        assert "--missing" not in words  # a fit keeps missing values
    kept = CliRunner().invoke(app, words)
    assert kept.exit_code == 0, kept.stderr
    assert "A fit keeps them" in kept.stdout
    without_notes = [f"{word},Bemerkung" if word == "Nr,Aufnahme" else word for word in words]
    done = CliRunner().invoke(app, [*without_notes, "--missing", "drop"])
    *_, compare, last = done.stdout.strip().splitlines()
    assert last == kept.stdout.strip().splitlines()[-1].replace("Aufnahme", "Aufnahme,Bemerkung")
    assert last.startswith("Next: fedfair fit klinik.csv --label 'Wieder da?' --group Geschlecht")
    fitted = CliRunner().invoke(app, [*shlex.split(last)[2:], "--out", "out/fit"])
    assert fitted.exit_code == 0, fitted.stderr
    assert compare.startswith("To compare methods: fedfair compare --csv klinik.csv --label 'Wieder da?' --group")
    command = [*shlex.split(compare)[4:], "--strategies", "sgd", "--seeds", "1", "--set", "epochs=1"]
    compared = CliRunner().invoke(app, command)
    assert compared.exit_code == 0, compared.stderr
    new = tmp_path / "new.csv"
    rows = messy.read_bytes().decode("cp1252").splitlines()
    new.write_bytes("\n".join([rows[0], *rows[2:5]]).encode("cp1252"))
    predicted = CliRunner().invoke(app, ["predict", "out/klinik", "new.csv"])
    assert predicted.exit_code == 0, predicted.stderr
    assert "€" in predicted.stdout
