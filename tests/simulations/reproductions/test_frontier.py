"""The frontier: what is chosen within a limit, how large a front is, who passes whom, and the page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

from simulations.reproductions import frontier
from simulations.reproductions.frontier_choice import against, fronts, impact, volumes
from simulations.reproductions.request import Request

LIMITS = {"demographic_parity": (0.05, 0.1)}


def points(**methods: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Return points of methods: of each setting the accuracy and the gap, with a little spread over three seeds."""
    rows = []
    for method, settings in methods.items():
        for setting, (accuracy, gap) in settings.items():
            for seed in range(3):
                at = accuracy + 0.001 * (seed - 1)
                named = {"dataset": "d", "epsilon": 1.0, "method": method, "setting": setting, "seed": seed}
                found = {"spent": 1.0, "majority": 0.5, "accuracy": at, "demographic_parity": gap,
                         "accuracy_parity": 0.0, "worst_group_error": 1 - at}
                rows += [{**named, **found, "split": split} for split in ("valid", "test")]
    return pd.DataFrame(rows)


def test_the_most_accurate_setting_within_each_limit_is_chosen() -> None:
    made = fronts(points(a={"fair": (0.7, 0.04), "fairer": (0.6, 0.0), "plain": (0.9, 0.3)}), LIMITS)
    chosen = made.groupby("limit")["setting"].unique().map(list).to_dict()
    assert chosen == {0.05: ["fair"], 0.1: ["fair"], math.inf: ["plain"]}
    assert len(made) == 3 * 3


def test_it_is_chosen_on_the_validation_part_and_measured_on_the_test_part() -> None:
    both = points(a={"x": (0.9, 0.04), "y": (0.8, 0.04)})
    both.loc[(both["split"] == "test") & (both["setting"] == "x"), "accuracy"] = 0.1
    assert fronts(both, LIMITS)["accuracy"].unique().tolist() == [0.1]


def test_a_method_without_a_setting_within_a_limit_has_none_there() -> None:
    made = fronts(points(a={"plain": (0.9, 0.3)}), LIMITS)
    assert made["limit"].unique().tolist() == [math.inf]


def test_hypervolumes_are_areas_under_steps() -> None:
    """Of one front with accuracy .6 from a gap of .02, and .8 from .06 on; the majority class's rate is .5."""
    both = points(a={"fair": (0.6, 0.02), "plain": (0.8, 0.06)}, b={"bad": (0.4, 0.0)})
    made = volumes(fronts(both, LIMITS), LIMITS)
    middle = made[(made["method"] == "a") & (made["seed"] == 1)]["volume"].iloc[0]
    assert middle == pytest.approx((0.1 * 0.04 + 0.3 * 0.04) / (0.1 * 0.5))
    assert made[made["method"] == "b"]["volume"].tolist() == [0, 0, 0]


def test_every_measure_has_its_own_fronts_and_an_unknown_one_has_none() -> None:
    limits = {**LIMITS, "worst_group_error": (0.15, 0.4)}
    both = points(a={"fair": (0.7, 0.04), "plain": (0.9, 0.3)})
    made = fronts(both, limits)
    chosen = made[made["measure"] == "worst_group_error"].groupby("limit")["setting"].unique().map(list).to_dict()
    assert chosen == {0.15: ["plain"], 0.4: ["plain"], math.inf: ["plain"]}
    images = fronts(both.assign(demographic_parity=math.nan), limits)
    assert images["measure"].unique().tolist() == ["worst_group_error"]


def test_a_front_is_passed_where_the_whole_interval_is_above() -> None:
    both = points(ours={"x": (0.8, 0.04)}, above={"x": (0.9, 0.04)}, below={"x": (0.7, 0.04)}, same={"x": (0.8, 0.04)})
    passed = against(fronts(both, LIMITS), "ours").groupby("method")["passes"].any().to_dict()
    assert passed == {"above": True, "below": False, "same": False}


def test_a_front_that_has_nothing_within_a_limit_is_passed_there() -> None:
    both = points(ours={"x": (0.9, 0.2)}, other={"x": (0.5, 0.0)})
    made = against(fronts(both, LIMITS), "ours").set_index("limit")["passes"]
    assert made.to_dict() == {0.05: True, 0.1: True, math.inf: False}


def test_what_noise_adds_is_told_of_the_setting_of_without_and_of_the_one_that_is_chosen_with_it() -> None:
    """Without noise the fast setting is best; with it the slow one, which has the gap of before."""
    both = points(dpsgd={"slow": (0.8, 0.0), "fast": (0.9, 0.0)}, other={"x": (0.7, 0.0)})
    noisy = both.assign(accuracy=both["accuracy"] - 0.2 * (both["setting"] == "fast"))
    gaps = {"slow": 0.01, "fast": 0.06, "x": 0.02}
    every = pd.concat([both.assign(epsilon=math.inf, accuracy_parity=0.01),
                       noisy.assign(accuracy_parity=noisy["setting"].map(gaps))])
    added = impact(every, "dpsgd", ["dpsgd", "other"]).groupby("method", sort=False)["added"].mean()
    assert added.to_dict() == pytest.approx({"dpsgd, not tuned again": 0.05, "dpsgd": 0.0, "other": 0.01})
    assert impact(noisy, "dpsgd", ["dpsgd"]).empty


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a plan of two methods that takes seconds."""
    plan = {"datasets": ["compas", "digits"], "epsilons": [3.0, math.inf], "seeds": 2, "share": 0.25,
            "limits": {"demographic_parity": [0.05, 0.2], "accuracy_parity": [0.1, 1.0],
                       "worst_group_error": [0.35, 0.5]}, "ours": ["moments"],
            "pictured": [3.0], "pictured_seeds": 3, "reference": "dpsgd", "remedies": ["dpsgd", "moments"],
            "images": {"digits": {"imbalance": "8:40", "split": [0.7, 0.1, 0.2]}},
            "settings": {"features": "bounded", "model": "linear", "steps": 3, "clip_norm": 1.0},
            "methods": {"moments": {"strategy": "moments"}, "fermi": {"strategy": "fermi", "for_tables": True},
                        "dpsgd": {"strategy": "dpsgd", "grid": {"learning_rate": [1.0, 10.0]}}},
            "quick": {"text": "Less."}}
    file = tmp_path / "plan.toml"
    file.write_text(tomli_w.dumps(plan))
    return file


def test_a_small_frontier_is_run_kept_and_told(small: Path, tmp_path: Path, data_dir: Path) -> None:
    out = tmp_path / "out"
    said = frontier.frontier(out, Request(), file=small)
    assert "Epsilon 3, gap of demographic parity: no front passes that of moments anywhere" in said
    page, other = (out / "README.md").read_text(), (out / "worst-group-error.md").read_text()
    assert "### compas, without noise" in page
    assert "| hypervolume | compas |" in page
    assert "| dpsgd | compas | 10 |" in page  # three seeds with noise, two without
    assert "means over 2 seeds, 3 of tables at epsilon 3, " in page
    assert "A method tried up to 2 settings" in page
    assert "| hypervolume | compas | digits |" in other
    assert "fermi on digits" not in other
    assert "| digits | dpsgd, not tuned again |" in (out / "accuracy-parity.md").read_text()
    read = pd.read_csv(out / "points.csv")
    assert set(read[read["dataset"] == "compas"]["method"]) == {"moments", "dpsgd", "fermi"}
    assert set(read[read["dataset"] == "digits"]["method"]) == {"moments", "dpsgd"}
    assert read[read["method"] == "moments"]["setting"].nunique() > 50
    assert read[read["epsilon"] == 3]["spent"].max() <= 3
    assert np.isinf(read[np.isinf(read["epsilon"])]["spent"]).all()
    kept = (out / "runs.parquet").read_bytes()
    frontier.frontier(out, Request(), file=small)
    assert (out / "runs.parquet").read_bytes() == kept
    part = Request(epsilons=(math.inf,), runs=out)
    frontier.frontier(tmp_path / "part", part, file=small)
    assert (out / "runs.parquet").read_bytes() == kept
    told = (tmp_path / "part" / "README.md").read_text()
    assert "# The frontier, epsilon inf: " in told
    assert "--epsilons inf --device cpu" in told
    assert "means over 2 seeds, " in told
    assert "epsilon 3" not in told.lower()
    gaps, worst = ({f"{name}-3-{of}.svg" for name in ("compas", "digits")}
                   for of in ("accuracy-parity", "worst-group-error"))
    assert {path.name for path in out.glob("*.svg")} == {"compas-3.svg", *gaps, *worst}


def test_rivals_are_other_strategies_that_know_as_much() -> None:
    plan = frontier.load()
    assert plan.rivals("moments, group known") == ["dpsgd, group known", "gs-dp-sgd-to"]
    assert {"fermi", "raco"} <= set(plan.rivals("moments"))
    assert not any("moments" in name or "known" in name for name in plan.rivals("moments"))


def test_every_method_tries_as_many_settings_as_the_others() -> None:
    plan = frontier.load()
    sizes = {name: len([*method.tried()]) for name, method in plan.methods.items()}
    assert set(sizes.values()) == {6}
    assert plan.most_settings == 6
    assert frontier.load(Request(quick=True)).epsilons == (1.0,)


def test_some_epsilons_can_be_asked_for() -> None:
    plan = frontier.load(Request(epsilons=(3.0, 0.1)))
    assert (plan.epsilons, plan.pictured, plan.pictured_seeds) == ((0.1, 3.0), (), 5)
    assert frontier.load(Request(epsilons=(1.0,))).pictured_seeds == 20
    with pytest.raises(ValueError, match="unknown epsilon '2'"):
        frontier.load(Request(epsilons=(2.0,)))


def test_epsilons_that_are_pictured_have_more_seeds() -> None:
    plan = frontier.load()
    assert [plan.seeds_at(epsilon, "adult") for epsilon in plan.epsilons] == [5, 5, 20, 5, 5]
    assert {plan.seeds_at(epsilon, "mnist") for epsilon in plan.epsilons} == {5}
    assert {frontier.load(Request(seeds=2)).seeds_at(epsilon, "adult") for epsilon in plan.epsilons} == {2}
    quick = frontier.load(Request(quick=True))
    assert [quick.seeds_at(1.0, name) for name in ("adult", "mnist")] == [3, 3]
