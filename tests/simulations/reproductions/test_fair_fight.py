"""The fair fight: every method gets the same grid, validation chooses, and the cost of the search is reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedfair.accounting import Event, Ledger
from simulations.cli import app
from simulations.reproductions.fair_fight import (
    best_by_clip_norm,
    choose,
    chosen_and_published,
    fair_fight,
    findings,
    measures,
    tuning_costs,
)
from simulations.reproductions.request import Kept, Request, kept_runs
from simulations.reproductions.tuning import Entry, load, plan
from tests.for_each import for_each

TOML = """
preset = "yang2024"
datasets = ["digits"]
strategies = ["sgd", "dpsgd"]
learning_rates = [0.001, 1.0]
clip_norms = [1.0, 3.0]
seeds = 2
choosing_seeds = 5
[settings]
hidden = [6]
epochs = 1
eval_every = 5
split = [0.5, 0.2, 0.3]
[quick]
text = "One clip norm."
clip_norms = [1.0]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "fight.toml").write_text(TOML)
    return tmp_path / "fight.toml"


def frame(rows: list[tuple[str, str, int, float, float, float]]) -> pd.DataFrame:
    """Rows (strategy, setting, seed, learning rate, valid, accuracy parity)."""
    return pd.DataFrame([{"dataset": "d", "strategy": strategy, "setting": setting, "seed": seed,
                          "learning_rate": rate, "clip_norm": 0.5, "epsilon": 2.0, "valid": valid, "accuracy": 0.8,
                          "accuracy_parity": parity}
                         for strategy, setting, seed, rate, valid, parity in rows])


RUNS = frame([
    *(("sgd", "published", s, 0.01, 0.8, 0.10) for s in (0, 1, 2)),
    *(("sgd", "lr 1", s, 1.0, 0.9, 0.08) for s in (0, 1, 2)),
    *(("sgd", "lr 2", s, 2.0, 0.7, 0.50) for s in (0, 1, 2)), *(("sgd", "lr 0.1", s, 0.1, 0.6, 0.5) for s in (0, 1, 2)),
    *(("dpsgd", "published", s, 0.01, 0.99, 0.15 + s / 1000) for s in (0, 1, 2)),
    ("dpsgd", "lr 1", 0, 1.0, 0.9, 0.081), ("dpsgd", "lr 1", 1, 1.0, 0.5, 0.080), ("dpsgd", "lr 1", 2, 1.0, 0.6, 0.079),
    *(("dpsgd", "lr 2", s, 2.0, 0.8, 0.081 - s / 1000) for s in (0, 1, 2))])


def test_the_real_grid_is_the_same_for_every_method_at_one_epsilon() -> None:
    for quick in (False, True):
        tuning = load(Request(quick=quick))
        entries = plan(tuning, "cpu")
        for dataset in tuning.datasets:
            mine = [e for e in entries if e.dataset == dataset]
            grids = {s: {(e.experiment.learning_rate, e.experiment.clip_norm) for e in mine
                         if e.strategy == s and e.setting != "published"} for s in tuning.strategies}
            rates = {rate for rate, _ in grids["sgd"]}
            assert rates == set(tuning.learning_rates)
            private = [grid for s, grid in grids.items() if s != "sgd"]
            assert all(grid == private[0] for grid in private)
            assert len(private[0]) == len(tuning.learning_rates) * len(tuning.clip_norms)
            assert len({e.experiment.target_epsilon for e in mine}) == 1
            assert {e.experiment.optimizer for e in mine if e.setting != "published"} == {"sgd"}
            assert all(e.experiment.split[1] > 0 for e in mine)
            assert all(e.experiment.eval_every > (e.experiment.epochs or 0) for e in mine)
        assert len({str(e.experiment.settings()) for e in entries}) >= len(entries) - len(entries) // 4
    assert load(Request(seeds=7)).seeds == 7
    assert load(Request(seeds=3)).choosing == range(3)
    assert load(Request(seeds=15)).choosing == range(5)


def test_the_mean_on_the_validation_part_chooses_among_the_grid_alone() -> None:
    chosen = choose(RUNS).set_index("strategy")
    assert chosen["setting"].to_dict() == {"sgd": "lr 1", "dpsgd": "lr 2"}
    assert chosen["at_edge"].to_dict() == {"sgd": False, "dpsgd": True}


def test_the_smallest_learning_rate_is_at_the_edge_as_well() -> None:
    smallest = RUNS.assign(valid=RUNS["valid"].where(RUNS["learning_rate"] != 0.1, 1.0))
    assert choose(smallest).set_index("strategy")["at_edge"].to_dict() == {"sgd": True, "dpsgd": True}


def test_each_clip_norm_has_its_own_learning_rate_and_the_test_part_does_not_choose_it() -> None:
    private = RUNS[RUNS["strategy"] == "dpsgd"]
    worse = private.assign(clip_norm=2.0, valid=private["valid"].where(private["setting"] == "lr 1", 0.1), accuracy=0.7)
    better = private.assign(accuracy=private["accuracy"].where(private["setting"] == "lr 2", 0.99))
    best = best_by_clip_norm(pd.concat([RUNS[RUNS["strategy"] == "sgd"], better, worse]))
    assert set(best["strategy"]) == {"dpsgd"}
    assert best.set_index("clip_norm")["learning_rate"].to_dict() == {0.5: 2.0, 2.0: 1.0}
    assert best.set_index("clip_norm")["accuracy"].to_dict() == pytest.approx({0.5: 0.8, 2.0: 0.7})


def test_impact_is_against_sgd_tuned_or_not_like_the_method_itself() -> None:
    results = chosen_and_published(RUNS, choose(RUNS)).set_index(["strategy", "version", "seed"])["impact"]
    assert results["dpsgd", "published", 1] == pytest.approx(0.051)
    assert results["dpsgd", "tuned", 0] == pytest.approx(0.001)
    assert results["sgd", "tuned", 2] == 0


def test_impact_is_against_sgd_on_the_same_data_set() -> None:
    other = RUNS.assign(dataset="e", accuracy_parity=RUNS["accuracy_parity"].where(RUNS["strategy"] != "sgd", 0.0))
    both = pd.concat([RUNS, other], ignore_index=True)
    impact = chosen_and_published(both, choose(both)).set_index(["dataset", "strategy", "version", "seed"])["impact"]
    assert impact["d", "dpsgd", "published", 1] == pytest.approx(0.051)
    assert impact["e", "dpsgd", "published", 1] == pytest.approx(0.151)


def finding(published: Sequence[float], tuned: Sequence[float]) -> str:
    """Return the finding about a dpsgd with these impacts, one for each seed."""
    rows = [("dpsgd", version, seed, impact) for version, impacts in (("published", published), ("tuned", tuned))
            for seed, impact in enumerate(impacts)]
    sentence, = findings(pd.DataFrame(rows, columns=["strategy", "version", "seed", "impact"]).assign(dataset="d"))
    return sentence


def test_the_finding_gives_both_impacts_and_their_difference_by_seed() -> None:
    results = chosen_and_published(RUNS, choose(RUNS))
    sentence, = findings(results)
    assert findings(results.sort_values("impact")) == [sentence]  # pairs are made by seed, in whatever order runs are
    assert "+0.051 ± 0.002 as published and +0.000 ± 0.002 tuned, so that tuning takes away +0.051 ± 0.005" in sentence
    assert "p = 0.125, at best 0.125" in sentence


@for_each(("published", "tuned", "verdict"), [
    ((0.04, 0.05, 0.06), (0.000, 0.001, -0.001),
     "it comes from the settings, and what is left is not distinguishable from zero"),
    ((0.04, 0.05, 0.06), (0.020, 0.025, 0.030), "50% of it is left, the rest comes from the settings"),
    ((0.04, 0.05, 0.06), (0.035, 0.052, 0.06), "what is left is not distinguishable from all of it"),
    ((0.04, 0.05, 0.06), (-0.020, -0.025, -0.030),
     "it comes from the settings, and after tuning the difference has the opposite sign"),
    ((0.009, 0.01, 0.011), (-0.02, 0.0, 0.025), "neither that nor what is left is distinguishable from zero"),
    ((-1.0, 0.0, 1.0), (0.0, 0.0, 0.0), "even as published it is not distinguishable from zero"),
])
def test_the_impact_comes_from_the_settings_only_if_what_tuning_takes_away_differs_from_zero(
        published: Sequence[float], tuned: Sequence[float], verdict: str) -> None:
    assert verdict in finding(published, tuned)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=8))
def test_which_is_what_the_paired_t_test_says(pairs: list[tuple[int, int]]) -> None:
    published, tuned = zip(*pairs, strict=True)
    taken, before = np.subtract(published, tuned), np.array(published)
    assume(taken.std() > 0)
    assume(before.std() > 0)
    upper = [scipy.stats.ttest_1samp(values, 0, alternative="greater").pvalue for values in (taken, before)]
    assume(all(abs(p - 0.025) > 1e-6 for p in upper))
    assert ("comes from the settings" in finding(published, tuned)) == all(p < 0.025 for p in upper)


def test_the_cost_of_looking_is_that_of_all_settings_together() -> None:
    event = Event((0.01, 0.01), (1.0, 1.0), (1.0, 1.0), None)
    ledger = Ledger(("a", "b"), 1e-5, accountant="rdp")
    ledger.record(event, 100)
    all_of_them = Ledger(("a", "b"), 1e-5, accountant="rdp")
    all_of_them.record(event, 300)
    made = plan(load(Request(quick=True)), "cpu")[0].experiment
    entries = [Entry("d", "dpsgd", setting, made) for setting in ("published", "lr 1", "lr 2", "lr 3")]
    costs = tuning_costs(entries, [Kept(pd.DataFrame(), ledger)] * 4)
    assert costs["settings"].item() == 3
    assert costs["epsilon"].item() == pytest.approx(ledger.epsilon())
    assert costs["epsilon_of_all"].item() == pytest.approx(all_of_them.epsilon())
    assert costs["epsilon_of_all"].item() > costs["epsilon"].item()
    second = [entry._replace(experiment=made.model_copy(update={"seed": 1})) for entry in entries]
    pd.testing.assert_frame_equal(tuning_costs([*entries, *second], [Kept(pd.DataFrame(), ledger)] * 8), costs)


def test_a_single_seed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "fair-fight", "--seeds", "1", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == "Error: fair-fight: seeds is 1: it should be greater than or equal to 2"
    assert not (tmp_path / "out").exists()


def test_seeds_that_do_not_choose_run_only_what_was_chosen_and_what_is_published(config: Path, tmp_path: Path) -> None:
    config.write_text(TOML.replace("choosing_seeds = 5", "choosing_seeds = 1"))
    fair_fight(tmp_path / "out", Request(seeds=3), file=config)
    grid, results = (pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("grid", "results"))
    runs = grid.groupby("seed").size()
    assert runs.to_dict() == {0: 3 + 5, 1: 2 * 2, 2: 2 * 2}
    assert choose(grid[grid["seed"] == 0])["setting"].tolist() == results.query(
        "version == 'tuned' and seed == 2")["setting"].tolist()
    assert results.groupby(["strategy", "version"])["seed"].agg(list).tolist() == [[0, 1, 2]] * 4
    page = (tmp_path / "out" / "README.md").read_text()
    assert "its mean accuracy on the validation part over one seed" in page
    assert "t-interval over 3 seeds" in page
    assert "| digits | dpsgd | 4 |" in page


def test_a_small_fight_from_beginning_to_end(config: Path, tmp_path: Path) -> None:
    said = fair_fight(tmp_path / "out", Request(quick=True), file=config)
    assert said.startswith("digits: dpsgd's impact on accuracy parity is")
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"grid.csv", "results.csv", "README.md", "runs.parquet",
                                                              "config.toml", "environment.json"}
    grid = pd.read_csv(tmp_path / "out" / "grid.csv")
    assert len(grid) == 2 * 2 * 3
    page = (tmp_path / "out" / "README.md").read_text()
    for words in ("# A fair fight", "This is the quick version. One clip norm.",
                  "| dpsgd | tuned: lr 1, C 1 (edge of the grid) |", "What tuning cost"):
        assert words in page
    assert "clip norm changes" not in page
    fair_fight(tmp_path / "out", file=config)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "quick" not in page
    assert "| data set | method | C 1 | C 3 | difference |" in page
    assert page.count("| digits | dpsgd | ") == 2
    entries = plan(load(Request(quick=True), file=config), "cpu")
    (first,) = kept_runs([entries[0].experiment], tmp_path / "out")
    assert math.isinf(measures(entries[:1], [first])["epsilon"].item())
