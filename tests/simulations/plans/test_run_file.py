"""Runs in one parquet file: nothing is lost of what is kept, and they are found by what tells them apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pydantic.fields import FieldInfo

from simulations.plans.kept_runs import RunFile
from simulations.settings.experiment import Experiment

METRICS = pd.DataFrame([(1, "rule", "all", "clip_norm", 1 / 3), (2, "test", "0", "accuracy", math.nan),
                        (2, "test", "ü", "loss", 5e-324)], columns=["round", "split", "group", "metric", "value"])
LEDGER = {"delta": 1e-6, "epsilon": None, "events": [{"rates": [0.1, 1e-300]}]}


def settings(**given: Any) -> dict[str, Any]:
    return Experiment(**given).settings()


def test_what_is_read_back_is_what_was_added_to_the_last_bit(tmp_path: Path) -> None:
    RunFile(tmp_path / "new" / "r.parquet").add(settings(seed=3), METRICS, LEDGER)
    read = RunFile(tmp_path / "new" / "r.parquet").find(settings(seed=3))
    assert read is not None
    pd.testing.assert_frame_equal(read["metrics"], METRICS, check_exact=True)
    assert (read["settings"], read["ledger"], read["points"]) == (settings(seed=3), LEDGER, None)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["r.parquet"]


def test_runs_add_up_and_one_with_equal_settings_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    for seed in (1, 0, 1):
        RunFile(path).add(settings(seed=seed), METRICS.assign(value=float(seed)), LEDGER)
    RunFile(path).add({**settings(), "over": {"theta": [0.1]}}, points=[{"value": 0.1, "accuracy": 0.5}])
    runs = RunFile(path)
    assert len(pd.read_parquet(path)) == 3
    for seed in (0, 1):
        assert (runs.find(settings(seed=seed)) or {})["metrics"]["value"].tolist() == [seed] * 3
    assert (runs.find({**settings(), "over": {"theta": [0.1]}}) or {})["points"] == [{"value": 0.1, "accuracy": 0.5}]
    assert runs.find({**settings(), "over": {"theta": [0.2]}}) is None
    assert runs.find(settings(seed=2)) is None


def test_the_versions_that_made_the_runs_are_named_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.parquet"
    for version, seeds in (("1 (revision a)", (0, 1)), ("2", (2,))):
        monkeypatch.setattr("simulations.plans.kept_runs.program_version", lambda version=version: version)
        for seed in seeds:
            RunFile(path).add(settings(seed=seed), METRICS, LEDGER)
    assert RunFile(path).versions() == "Runs of fedfair 1 (revision a) and 2."
    assert RunFile(path).versions([settings(seed=1)]) == "Runs of fedfair 1 (revision a)."
    assert RunFile(tmp_path / "none").versions() == ""
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["version"]), path)  # as it was before versions were kept
    assert RunFile(path).versions() == "Runs of fedfair of a version that was not kept."
    assert RunFile(path).find(settings(seed=2)) is not None


def test_the_order_in_which_runs_end_does_not_change_the_file(tmp_path: Path) -> None:
    for name, seeds in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        for seed in seeds:
            RunFile(tmp_path / name).add(settings(seed=seed), METRICS, LEDGER)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_run_from_before_a_setting_existed_is_one_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunFile(None)
    runs.add(settings(strategy="dpsgd"), METRICS, LEDGER)
    monkeypatch.setitem(Experiment.__pydantic_fields__, "dropout", FieldInfo(annotation=float, default=0.5))
    assert runs.find({**settings(strategy="dpsgd"), "dropout": 0.5}) is not None
    assert runs.find({**settings(strategy="dpsgd"), "dropout": 0.1}) is None


@pytest.mark.parametrize("then", [{"momentum": 0.9}, {"a setting that went": 1}])
def test_a_run_with_another_default_is_another_run(then: dict[str, float]) -> None:
    runs = RunFile(None)
    runs.add({**settings(), **then}, METRICS, LEDGER)
    assert runs.find(settings()) is None


def test_a_file_that_could_not_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.parquet"
    RunFile(path).add(settings(seed=0), METRICS, LEDGER)
    before = path.read_bytes()

    def full(table: Any, where: Path, **given: Any) -> None:
        where.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("simulations.plans.kept_runs.pq.write_table", full)
    with pytest.raises(OSError, match="No space left"):
        RunFile(path).add(settings(seed=1), METRICS, LEDGER)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"not parquet", None])
def test_a_file_of_something_else_is_refused_in_a_sentence(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    if content is None:
        METRICS.to_parquet(path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"r\.parquet holds no runs that this version can read"):
        RunFile(path)
