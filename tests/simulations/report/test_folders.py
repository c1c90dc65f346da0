"""What is read from a folder is what was saved there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from simulations import Experiment, run
from simulations.report.contents import found
from simulations.results import run_folder
from simulations.results.run_folder import read
from simulations.settings.presets import merged
from tests.simulations.report.conftest import QUICK, saved_comparison


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
        run(Experiment(**merged(QUICK, {"steps": 2}, settings))).save(tmp_path / name)
    sources, (comparison,) = read([tmp_path / name for name in ("plain", "wide", "other")])
    assert [source.kind for source in sources] == ["run"] * 3
    assert comparison.methods == ["dpsgd", "dpsgd (wide)", "dpsgd-f"]
    assert len(comparison.summary) == 3


def test_a_folder_s_privacy_costs_are_against_its_own_reference(comparison_folder: Path, tmp_path: Path) -> None:
    longer = saved_comparison(tmp_path / "longer", ["sgd", "dpsgd"], 2, imbalance="8:40", epochs=6)
    alone = run(Experiment(**QUICK, imbalance="8:40", split=(0.8, 0.0, 0.2), strategy="dpsgd", clip_norm=2.0))
    _, (comparison,) = read([comparison_folder, longer, alone.save(tmp_path / "alone")])
    assert comparison.methods == ["sgd", "dpsgd", "dpsgd-f", "sgd (longer)", "dpsgd (longer)", "dpsgd (alone)"]
    summary, own = (table.set_index("strategy") for table in (comparison.summary,
                                                              pd.read_csv(longer / "summary.csv")))
    final = comparison.final
    for method in ("sgd", "dpsgd"):
        for figure in ("privacy_cost_8_mean", "privacy_cost_gap_mean", "excessive_risk_8_mean"):
            assert summary.loc[f"{method} (longer)", figure] == pytest.approx(own.loc[method, figure])
    assert summary.loc["dpsgd (alone)", "privacy_cost_8_mean"] == pytest.approx(
        final.loc[("digits", "sgd", 0), ("8", "accuracy")] - summary.loc["dpsgd (alone)", "accuracy_8_mean"])
    assert not any("sgd (longer)" in sentence.replace("dpsgd (longer)", "") for sentence in found(comparison))


def test_folders_of_one_name_are_told_apart_and_one_folder_is_named_once(tmp_path: Path) -> None:
    for place in ("a", "b", "c"):
        run(Experiment(**merged(QUICK, {"steps": 1}))).save(tmp_path / place / "out")
    folders = [tmp_path / place / "out" for place in ("a", "b", "c")]
    _, (comparison,) = read(folders)
    assert comparison.methods == ["dpsgd", "dpsgd (out 2)", "dpsgd (out 3)"]
    with pytest.raises(ValueError, match="is named more than once: name each folder once"):
        read([folders[0], folders[1], folders[0]])


def test_runs_on_other_data_are_another_comparison_that_says_how_they_differ(tmp_path: Path) -> None:
    for place, imbalance in (("all", None), ("few", "8:40")):
        run(Experiment(**merged(QUICK, {"steps": 1, "imbalance": imbalance}))).save(tmp_path / place)
    _, comparisons = read([tmp_path / "all", tmp_path / "few"])
    assert [comparison.title for comparison in comparisons] == ["digits, imbalance = None", "digits, imbalance = 8:40"]
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "people.csv"
        file.write_text("\n".join(["x,hired,sex", *(f"{i % 7},{i % 2},{'fm'[i % 3 // 2]}" for i in range(90))]) + "\n")
        saved_comparison(tmp_path / place / "out", ["dpsgd"], 1, csv=str(file), label="hired", group="sex",
                         batch_size=16)
    _, comparisons = read([tmp_path / "here" / "out", tmp_path / "there" / "out"])
    assert [comparison.chosen for comparison in comparisons] == [{"csv": str(tmp_path / place / "people.csv")}
                                                                 for place in ("here", "there")]


def test_records_of_a_file_are_not_those_of_a_data_set_of_its_name(tmp_path: Path) -> None:
    described = {"strategies": ["dpsgd"], "seeds": [0], "preset": "xu2021"}
    for settings, expected in (({"dataset": "mnist"}, "8:500"),
                               ({"csv": "mnist.csv", "label": "hired", "group": "sex"}, None)):
        (tmp_path / "config.toml").write_text(tomli_w.dumps({**described, "settings": settings}))
        assert run_folder._data(run_folder.RunFolder(tmp_path), "mnist").imbalance == expected


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
