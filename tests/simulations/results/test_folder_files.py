"""Every file of every folder is listed, with what protects it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.accounting import Ledger
from fedfair.accounting.contents import MEANINGS, Part, objections
from simulations import Experiment, run
from simulations.cli import app
from simulations.report import write_report
from simulations.results.ledger_table import file_notes
from tests.strategies.two_groups import two_groups

SHORT = ["--set", "steps=2", "--set", "hidden=[8]", "--set", "batch_size=16", "--set", "accountant=rdp"]
OWN = ["--csv", two_groups()["csv"], "--label", "label", "--group", "group"]


def done(*words: str) -> None:
    """Run a command of fedfair, which must succeed."""
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == 0, outcome.output


def listings(folder: Path) -> Iterator[Mapping[str, list[dict[str, str]]]]:
    """Yield the listings of a folder: of its files.json, or of the ledger of every run in its ledger.json."""
    file = folder / "files.json"
    values = json.loads((file if file.is_file() else folder / "ledger.json").read_text())
    for part in [values] if "files" in values else values.values():
        yield part["files"]


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def check_all_are_listed(folder: Path, unknown: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Check that every file has parts, and each of them a protection that means something."""
    for listing in listings(folder):
        assert files_in(folder) <= set(listing)
        for name, parts in listing.items():
            assert parts, name
            assert all(part["protected_by"] == MEANINGS[part["protection"]] for part in parts)  # type: ignore[index]
            assert any(part["protection"] == "unknown" for part in parts) is (name in unknown), name


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_all_files_of_runs_and_comparisons_are_listed(randomness: str, tmp_path: Path) -> None:
    words = [*OWN, *SHORT, "--set", f"randomness={randomness}", "--set", "split=[0.5,0.3,0.2]"]
    done("run", "--strategy", "dpsgd", *words, "--set", "threshold=toc", "--out", str(tmp_path / "run"))
    done("compare", "--strategies", "sgd,dpsgd", "--seeds", "2", "--jobs", "1", *words, "--out", str(tmp_path / "both"))
    for name in ("run", "both"):
        done("report", str(tmp_path / name))
        check_all_are_listed(tmp_path / name)
        assert "report.html" in files_in(tmp_path / name)
    assert {"thresholds.json"} < files_in(tmp_path / "run")
    assert {"statistics.csv"} < files_in(tmp_path / "both")
    plain, private = (json.loads((tmp_path / "both" / "ledger.json").read_text())[f"{name}/seed-0"]["files"]
                      for name in ("sgd", "dpsgd"))
    assert {"holds": "weights", "protection": "training", "protected_by": MEANINGS["training"]
            } in plain["model.safetensors"]
    assert {"holds": "weights", "protection": "releases", "protected_by": MEANINGS["releases"]
            } in private["model.safetensors"]


def test_a_file_of_the_users_own_is_listed_as_unknown(tmp_path: Path) -> None:
    result = run(Experiment(hidden=(8,), steps=1))
    result.save(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("the oldest is Ann")
    result.save(tmp_path / "run")
    check_all_are_listed(tmp_path / "run", {"notes.txt"})
    because = json.loads((tmp_path / "run" / "ledger.json").read_text())["cannot_be_published_because"]
    assert all("notes.txt: another file" in reasons for reasons in because.values())


def test_all_files_of_a_curve_are_listed(tmp_path: Path) -> None:
    done("curve", *OWN, "--strategies", "dpsgd", "--over", "dpsgd.learning_rate=[0.1,0.2]", *SHORT,
         "--out", str(tmp_path / "curve"))
    check_all_are_listed(tmp_path / "curve", {"curves.csv", "curves.svg", "runs.parquet"})
    assert files_in(tmp_path / "curve") == {"config.toml", "curves.csv", "curves.svg", "environment.json",
                                             "files.json", "runs.parquet"}


@pytest.mark.xdist_group("ray")
def test_all_files_of_a_sweep_are_listed_and_nothing_of_ray_is_left(tmp_path: Path) -> None:
    config = tmp_path / "sweep.toml"
    config.write_text('strategies = ["dpsgd"]\n[settings]\nsteps = 2\nhidden = [8]\naccountant = "rdp"\n'
                      'randomness = "system"\nsplit = [0.6, 0.2, 0.2]\n'
                      "[search]\ntrials = 1\n[search.space]\nlearning_rate = { values = [0.1] }\n")
    done("sweep", str(config), "--out", str(tmp_path / "sweep"))
    done("report", str(tmp_path / "sweep"))
    check_all_are_listed(tmp_path / "sweep")
    assert not any(path.name == ".tune" for path in (tmp_path / "sweep").iterdir())
    because = json.loads((tmp_path / "sweep" / "files.json").read_text())["cannot_be_published_because"]
    assert because["training records"] == []
    assert any("metrics.parquet" in reason for reason in because["held-out records"])


@pytest.mark.parametrize(("settings", "can"), [
    ({"randomness": "system"}, "can be published"), ({}, "cannot be published"),
    ({"randomness": "system", "figures": "exact"}, "cannot be published"),
    ({"randomness": "system", "strategy": "sgd"}, "cannot be published"),
    ({"figures": "held-out"}, "cannot be published")])
def test_the_ledger_says_whether_a_folder_can_be_published(settings: dict[str, Any], can: str, tmp_path: Path) -> None:
    run(Experiment(**{"hidden": (8,), "steps": 2, "strategy": "dpsgd", **settings})).save(tmp_path / "run")
    ledger = Ledger.from_dict(json.loads((tmp_path / "run" / "ledger.json").read_text()))
    notes = file_notes(ledger)
    assert any(re.match(rf"as far as the privacy of training records goes, the files {can}", note) for note in notes)
    assert any("held-out records goes, the files cannot" in note for note in notes)
    assert any("public by assumption: " in note and "names of groups and classes" in note for note in notes)


def test_held_out_figures_of_participants_are_figures_of_those_who_are_protected() -> None:
    files = {"metrics.parquet": (Part("losses", "held-out"),)}
    assert objections(files, "record", None)["training records"] == []
    assert objections(files, "participant", None)["training participants"] == ["metrics.parquet: losses"]


def test_a_report_of_participants_does_without_numbers_that_are_not_public(tmp_path: Path) -> None:
    made = Experiment(strategy="dp-fedavg", partition="site", clients=20, hidden=(8,), steps=2, randomness="system")
    run(made).save(tmp_path / "run")
    table = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert "train" not in set(table["split"])
    page = write_report([tmp_path / "run"])[0].read_text()
    assert "<td>0</td>" not in page
    check_all_are_listed(tmp_path / "run")
