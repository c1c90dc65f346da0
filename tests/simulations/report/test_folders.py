"""What is read of a folder is what was saved there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from simulations import Experiment, run
from simulations.report.folders import read
from tests.simulations.report.conftest import QUICK


def test_a_comparison_has_its_methods_seeds_and_the_summary_that_was_saved(comparison_folder: Path) -> None:
    (source,), (comparison,) = read([comparison_folder])
    assert (source.kind, comparison.title, comparison.methods, comparison.seeds) == (
        "comparison", "digits", ["sgd", "dpsgd", "dpsgd-f"], 3)
    assert next(iter(comparison.sizes)) == "8"
    assert comparison.sizes["8"] == 40
    saved = pd.read_csv(comparison_folder / "summary.csv")
    pd.testing.assert_frame_equal(comparison.summary[saved.columns], saved, check_dtype=False)


def test_runs_of_several_folders_are_one_comparison_and_a_method_met_twice_is_named_after_its_folder(
        tmp_path: Path) -> None:
    for name, settings in {"plain": {"strategy": "dpsgd"}, "wide": {"strategy": "dpsgd", "clip_norm": 2.0},
                           "other": {"strategy": "dpsgd-f"}}.items():
        run(Experiment(**{**QUICK, "steps": 2, **settings})).save(tmp_path / name)
    sources, (comparison,) = read([tmp_path / name for name in ("plain", "wide", "other")])
    assert [source.kind for source in sources] == ["run"] * 3
    assert comparison.methods == ["dpsgd", "dpsgd (wide)", "dpsgd-f"]
    assert len(comparison.summary) == 3


def test_a_sweep_is_a_comparison_for_each_choice_and_says_what_is_missing(sweep_folder: Path) -> None:
    (source,), comparisons = read([sweep_folder])
    assert source.kind == "sweep"
    assert [comparison.title for comparison in comparisons] == ["digits, target_epsilon = 2.0",
                                                                "digits, target_epsilon = 8.0"]
    assert [comparison.methods for comparison in comparisons] == [["dpsgd", "dpsgd-f"], ["dpsgd"]]
    assert len(source.notes) == 1
    assert "out of memory" in source.notes[0]


def test_a_folder_without_a_result_is_refused_with_what_is_missing(comparison_folder: Path, sweep_folder: Path,
                                                                   tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.toml in"):
        read([tmp_path])
    shutil.copytree(comparison_folder, tmp_path / "half")
    (tmp_path / "half" / "metrics.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"no metrics\.parquet in"):
        read([tmp_path / "half"])
    shutil.copytree(sweep_folder, tmp_path / "swept")
    (tmp_path / "swept" / "trials.csv").unlink()
    with pytest.raises(FileNotFoundError, match="not finished"):
        read([tmp_path / "swept"])
