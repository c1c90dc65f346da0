"""The audit of the folder finds what reveals a record, wherever it stands, and nothing in a folder that is clean."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations import Experiment
from simulations.audits import folder as audits
from simulations.audits.folder import FolderAudit, audit_folder, entries
from simulations.audits.neighbours import neighbours
from simulations.cli import app
from simulations.results.result import Result
from tests.strategies.two_groups import two_groups

RANGES = {name: [-5, 5] for name in "pqrst"}


SHORT = {**two_groups(), "strategy": "dpsgd", "model": "logistic", "steps": 4, "batch_size": 16, "eval_every": 0.2,
         "randomness": "system", "ranges": RANGES, "categories": {}}


def audited(**settings: Any) -> FolderAudit:
    """Audit short runs on a small table."""
    return audit_folder(Experiment(**{**SHORT, **settings}), runs=8)


def kinds(audit: FolderAudit) -> set[tuple[str, str]]:
    return {(leak.entry.split("/")[0], leak.kind) for leak in audit.leaks}


def test_a_clean_folder_has_nothing() -> None:
    audit = audited()
    assert audit.leaks == ()
    assert (audit.guarantee, audit.refuted) == ("proved", False)


def test_what_preprocessing_learned_is_found() -> None:
    audit = audited(ranges=None, categories=None)
    assert ("model.safetensors", "fixed") in kinds(audit)
    assert (audit.guarantee, audit.refuted) == ("nominal", False)


def test_a_seeded_run_is_a_function_of_its_records() -> None:
    audit = audited(randomness="seeded", figures="held-out", batch_size=140)
    assert ("model.safetensors", "fixed") in kinds(audit)
    assert (audit.guarantee, audit.refuted) == ("simulated", False)


def hashed(result: Result, folder: Path) -> None:
    (folder / "hash.txt").write_text(sha256(Path(str(result.experiment.csv)).read_bytes()).hexdigest())


def counted(result: Result, folder: Path) -> None:
    (folder / "count.json").write_text(json.dumps({"positives": int(result.data.train.y.sum())}))


def padded(result: Result, folder: Path) -> None:
    """Keep what is said out of every value, but not out of the size."""
    (folder / "noise.bin").write_bytes(b"x" * (10 + int(result.data.train.y.sum())))


def maximum(result: Result, folder: Path) -> None:
    pd.DataFrame({"column": ["p"], "max": [float(result.data.train.x[:, 0].max())],
                  "mean": [float(result.data.train.x.mean())]}).to_parquet(folder / "columns.parquet")


@pytest.fixture(scope="module")
def planted() -> FolderAudit:
    """Audit runs whose folders have all that is planted, each in a file of its own."""
    real = Result.save

    def save(result: Result, folder: Path) -> Path:
        real(result, folder)
        for plant in (hashed, counted, padded, maximum):
            plant(result, folder)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Result, "save", save)
        return audited()


@pytest.mark.parametrize("entry", [
    "hash.txt/content", "count.json/positives", "noise.bin/size", "columns.parquet/p/mean"])
def test_a_planted_function_of_the_records_is_found(planted: FolderAudit, entry: str) -> None:
    assert entry in {leak.entry for leak in planted.leaks}


def test_only_what_was_planted_is_found(planted: FolderAudit) -> None:
    assert {leak.entry.split("/")[0] for leak in planted.leaks} == {"hash.txt", "count.json", "noise.bin",
                                                                    "columns.parquet"}


def test_a_loss_after_another_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of that round are not in the folder."""
    real = audits._Seen.watch

    def watch(seen: Any, strategy: Any, now: int) -> None:
        real(seen, strategy, now)
        if now < strategy.rounds and (now, "all", "loss") in seen.figures:
            strategy.rows.add(now, "noise", [("all", "number", seen.figures[now, "all", "loss"])])

    monkeypatch.setattr(audits._Seen, "watch", watch)
    assert kinds(audited()) == {("metrics.parquet", "exact")}


def test_the_neighbours_differ_in_one_record_and_in_no_public_number(tmp_path: Path) -> None:
    for made in (Experiment(**two_groups(), ranges=RANGES), Experiment()):
        found = neighbours(made)
        parts = []
        for without in (False, True):
            with found.world(without, tmp_path) as world:
                parts.append(world.task.data().train)
        before, after = parts
        assert before.group.equal(after.group)
        changed = (before.x != after.x).flatten(1).any(1).nonzero().flatten().tolist()
        assert [int(before.records[row]) for row in changed] == [found.target]
        assert made.task.data().train.x.equal(before.x)


def test_entries_are_all_values_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"b": [1, "x", true, null]}')
    (tmp_path / "c.csv").write_text("name,value\nd,0.5\n")
    assert entries(tmp_path) == {
        "a.json/size": 27.0, "a.json/b/length": 4.0, "a.json/b/0": 1.0, "a.json/b/1": "x", "a.json/b/2": "True",
        "a.json/b/3": "None", "c.csv/size": 17.0, "c.csv/columns": "name, value", "c.csv/d/value": 0.5}


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("dataset", [
    name if name == "compas" else pytest.param(name, marks=pytest.mark.slow)
    for name in ("adult", "compas", "digits")])
def test_the_folder_of_a_built_in_table_has_nothing(dataset: str, tmp_path: Path) -> None:
    """Through the command, whose folders hold what a user's do."""
    shown = CliRunner().invoke(app, ["audit", "--attack", "folder", "--runs", "8", f"--set=dataset={dataset}",
                                     "--set=steps=2", "--out", str(tmp_path / "found.json")], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    (found,) = json.loads((tmp_path / "found.json").read_text())["audits"]
    assert (found["guarantee"], found["leaks"], found["runs"], found["refuted"]) == ("proved", [], 8, False)
    assert found["entries"] > 100
    assert "nothing found" in shown.output


def test_exact_figures_are_found_and_shown_and_refute_the_guarantee(tmp_path: Path) -> None:
    asked = {name: json.dumps(value) for name, value in SHORT.items() if name not in ("strategy", "ranges")}
    asked |= {"figures": "exact", "ranges": str({name: [-5, 5] for name in RANGES}).replace(":", "=").replace("'", "")}
    settings = [f"--set={name}={text}" for name, text in asked.items()]
    shown = CliRunner().invoke(app, ["audit", "--attack", "folder", "--runs", "8", *settings, "--out",
                                     str(tmp_path / "found.json")], env={"COLUMNS": "200"})
    assert shown.exit_code == 1, shown.output
    assert "exact" in shown.output
    assert "metrics.parquet" in shown.output
    (found,) = json.loads((tmp_path / "found.json").read_text())["audits"]
    assert found["refuted"]
    assert {leak["entry"].split("/")[0] for leak in found["leaks"]} == {"metrics.parquet"}
    assert any("loss of" in leak["detail"] for leak in found["leaks"] if leak["kind"] == "exact")


@pytest.mark.parametrize(("settings", "message"), [
    ({"runs": 7}, "runs is 7: take at least 8"), ({"target": 10**6}, "row 1000000 is not in the training part")])
def test_what_shows_nothing_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_folder(Experiment(hidden=(8,), steps=1), **settings)
