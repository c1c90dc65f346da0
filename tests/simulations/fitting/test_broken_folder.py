"""A file of a result's folder that was cut, or holds something else, is named in one sentence; nothing is replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from simulations.files.saved_files import saved_table
from simulations.results.run_folder import read_folder
from tests.simulations.fitting.conftest import people
from tests.simulations.settings.test_errors import error_of

CASES: dict[str, dict[str, bytes | None]] = {
    "ledger.json": {"ledger": None, "report": b"", "choose": b"[1, 2]", "export": b'{"groups": 5}',
                    "ledger --delta 0.1": b'{"sgd/seed-0": 5}'},
    "config.toml": {"report": None, "choose": b"", "export": 'strategy = "sgd"\n'.encode("utf-16")},
    "fit.toml": {"choose": b'epsilon = "one"\n', "export": b"[" * 5000 + b"]" * 5000},
    "metrics.parquet": {"report": None, "choose": b"hello world\n"}, "front.parquet": {"choose": None},
    "model.safetensors": {"predict": None, "report": b"", "choose": b"hello world\n"}}
"""What stands in a file, or None for its first third, by a command that reads it."""


@pytest.mark.parametrize("name", CASES)
def test_a_broken_file_is_named_and_nothing_is_replaced(name: str, folder: Path, tmp_path: Path) -> None:
    people(50).to_csv(tmp_path / "new.csv", index=False)
    more = {"predict": [tmp_path / "new.csv"], "export": ["--python", tmp_path / "model.py"]}
    whole = (folder / name).read_bytes()
    shutil.copytree(folder, tmp_path / "fit")
    for command, content in CASES[name].items():
        (tmp_path / "fit" / name).write_bytes(whole[:len(whole) // 3] if content is None else content)
        before = {path.name: path.read_bytes() for path in (tmp_path / "fit").iterdir()}
        first, *options = command.split()
        assert f"{tmp_path / 'fit' / name} " in error_of(first, str(tmp_path / "fit"), *options,
                                                        *map(str, more.get(first, ()))), command
        assert {path.name: path.read_bytes() for path in (tmp_path / "fit").iterdir()} == before, command


@pytest.mark.parametrize(("text", "refused"), [
    ("", "it should have a strategy"), ('strategies = ["sgd"]\nsettings = 5', "strategies and settings"),
    ('strategy = "sgd"\ndataset = 5', "dataset: ")])
def test_a_configuration_of_another_shape_is_refused(text: str, refused: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "fit")
    (tmp_path / "fit" / "config.toml").write_text(text)
    with pytest.raises(ValueError, match=rf"config\.toml does not hold what fedfair writes there .*{refused}"):
        read_folder(tmp_path / "fit")


def test_a_table_without_a_column_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "metrics.parquet")
    with pytest.raises(ValueError, match=r"metrics\.parquet has no column 'value'"):
        saved_table(tmp_path / "metrics.parquet", ("a", "value"))
