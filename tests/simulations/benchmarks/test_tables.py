"""The benchmark of tables: made tables have the chances they state, scores are right, and absent peers are named."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.fairness.noisy_figures import Figure
from simulations.benchmarks.tables.__main__ import app
from simulations.benchmarks.tables.entrants import _range, peers_on
from simulations.benchmarks.tables.made import GROUP, LABEL, MADE
from simulations.benchmarks.tables.measured import covered, divided_real
from simulations.benchmarks.tables.real import REAL, at_hand
from simulations.benchmarks.tables.scores import by_group, truth
from tests.for_each import for_each

ROWS = 20_000


def test_there_are_fifteen_made_tables_and_small_ones_among_them() -> None:
    assert len(MADE) == 15
    assert {table.rows for table in MADE.values()} >= {700, 2_500}


@for_each("name", MADE)
def test_labels_are_as_frequent_as_the_stated_chances_say(name: str) -> None:
    sample = MADE[name].draw(3, ROWS)
    yes = (sample.frame[LABEL] == "yes").to_numpy()
    for rows in np.array_split(np.argsort(sample.chance), 8):  # from the least to the most probable
        spread = np.sqrt((sample.chance[rows] * (1 - sample.chance[rows])).sum())
        assert abs((yes[rows] - sample.chance[rows]).sum()) < 4.5 * spread


@for_each("name", MADE)
def test_rows_follow_from_the_seed_and_differ_by_it(name: str) -> None:
    table = replace(MADE[name], rows=200)
    first, again, other = (table.draw(seed).frame for seed in (5, 5, 6))
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)
    assert len(first) == 200
    assert {GROUP, LABEL} <= {*first}


def test_who_knows_the_chances_decides_best() -> None:
    sample = MADE["steps and bends"].draw(0, ROWS)
    y, group = (sample.frame[LABEL] == "yes").to_numpy(), sample.frame[GROUP].to_numpy()
    best = truth(sample.chance, y, group)
    worse = truth(np.clip(sample.chance + 0.2, 0, 1), y, group)
    assert best["all", "accuracy"] > worse["all", "accuracy"] + 0.005
    assert best["all", "brier_score"] < worse["all", "brier_score"] - 0.02
    assert best["all", "auc"] > worse["all", "auc"] - 1e-3


def test_gaps_are_those_of_the_groups_that_have_enough_rows() -> None:
    group = np.repeat(["a", "b", "c"], [40, 40, 5])
    score = np.where(group == "a", 0.9, 0.1)
    y = np.tile([True, False], 43)[:85]
    found = truth(score, y, group)
    assert found["all", "demographic_parity"] == 1.0
    assert found["all", "accuracy_parity"] == 0.0
    assert found["c", "positive_rate"] == 0.0
    assert np.isnan(truth(score[:40], y[:40], group[:40])["all", "demographic_parity"])


def test_thresholds_by_group_are_the_best_of_all_within_the_gap() -> None:
    draws = np.random.default_rng(0)
    group = np.repeat(["a", "b"], 20)
    score = draws.random(40).round(3)
    y = draws.random(40) < np.where(group == "a", score, score / 3)
    gap = 0.1

    def rates(cuts: tuple[float, ...]) -> tuple[float, float]:
        """Return the gap and the accuracy of thresholds."""
        decided = score > np.where(group == "a", *cuts)
        return abs(decided[:20].mean() - decided[20:].mean()), (decided == y).mean()

    possible = [rates(cuts) for cuts in product(np.linspace(-0.001, 1, 500), repeat=2)]
    best = max(right for apart, right in possible if apart <= gap + 1e-9)
    cuts = by_group(score, y, group, gap)
    apart, right = rates((cuts["a"], cuts["b"]))
    assert apart <= gap + 0.05 + 1e-9  # one row of twenty more, since shares of rows are rounded
    assert right >= best - 1e-9


def test_intervals_that_tell_nothing_do_not_count() -> None:
    found = {("all", "accuracy"): 0.8, ("a", "auc"): 0.7, ("b", "auc"): 0.7}
    figures = [Figure("all", "accuracy", 0.79, 0.75, 0.83), Figure("a", "auc", 0.5, 0.4, 0.6),
               Figure("b", "auc", 0.5, 0.0, 1.0), Figure("b", "loss", 1.0, 0.9, 1.1)]
    assert covered(figures, found) == {"intervals": 2, "hold": 1}


def test_a_known_range_leaves_out_the_outermost_rows_unless_nothing_is_left() -> None:
    assert _range(pd.Series(np.arange(1_001.0))) == (10.0, 990.0)
    assert _range(pd.Series([0.0] * 999 + [1.0])) == (0.0, 1.0)


def test_peers_without_privacy_learn_and_those_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch,
                                                                                tmp_path: Path) -> None:
    for name in ("interpret", "diffprivlib"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own, test = MADE["missing values"].draw(0, 3_000), MADE["missing values"].draw(1, 5_000)
    made, absent = peers_on(own.frame, test.frame, own.frame, [1.0], 0)
    assert absent == {"DP-EBM .3/100": "hidden", "DP-EBM defaults": "hidden", "diffprivlib": "hidden"}
    y, group = (test.frame[LABEL] == "yes").to_numpy(), test.frame[GROUP].to_numpy()
    best = truth(test.chance, y, group)["all", "auc"]
    assert [each.name for each in made] == ["logistic regression", "boosted trees"]
    for each in made:
        assert best - 0.1 < truth(each.score, y, group)["all", "auc"] < best + 0.01
        assert each.epsilon is None
        assert len(each.own) == 3_000  # type: ignore[arg-type]


def test_the_command_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("interpret", "diffprivlib"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("simulations.benchmarks.tables.__main__.divided_made",
                        lambda table, seed: divided_real(table.name, table.draw(seed).frame, seed))
    points = tmp_path / "points.csv"
    asked = ["made", str(points), "--table", "700 rows", "--peers", sys.executable]
    first = CliRunner().invoke(app, [*asked, "--seeds", "1"])
    assert first.exit_code == 0, first.output
    assert "DP-EBM .3/100 is not at hand (hidden)" in first.output
    lines = pd.read_csv(points)
    assert {*lines["method"]} == {f"{name}{gap}" for name in ("logistic regression", "boosted trees", "fit")
                                  for gap in ("", ", gap 0.05")}
    fit = lines[lines["method"] == "fit"].iloc[0]
    assert 0 < fit["hold"] <= fit["intervals"]
    assert 0.5 < fit["accuracy"] < 0.85
    again = CliRunner().invoke(app, [*asked, "--seeds", "1"])
    assert again.output == ""
    out = tmp_path / "compared.json"
    said = CliRunner().invoke(app, ["compare", str(points), "--rival", "logistic regression", "--out", str(out)])
    assert said.exit_code == 0, said.output
    assert "Intervals of a fit's own figures that hold the truth" in said.output
    assert json.loads(out.read_text())["figures"][0]["table"] == "700 rows"


def test_tables_at_hand_hold_two_classes_and_no_label_among_the_features() -> None:
    assert {"breast cancer", "digits: an 8"} <= {*at_hand()}
    for name, table in at_hand().items():
        if table.package == "sklearn":
            frame = table.load()
            assert {*frame[LABEL]} == {"yes", "no"}, name
            assert "target" not in frame
    assert len(REAL) > 25
