"""The surface: what privacy costs a group by its share of the training records, and from which share on it is borne."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.fairness.intervals import Estimate
from simulations.engines.stacked import stacks
from simulations.reproductions.request import Request
from simulations.reproductions.surface import Borne, borne, chosen, costs, findings, surface
from simulations.reproductions.surface_study import Study, kept, load, plan
from simulations.settings.experiment import SettingsError
from simulations.statistics.summary import REFERENCE

TOML = """
bearable = 0.05
seeds = 2
[settings]
model = "linear"
features = "bounded"
delta = 1e-5
steps = 2
accountant = "rdp"
[data.digits]
group = "8"
shares = [0.02, 0.05]
epsilons = [1.0, 8.0]
learning_rates = [1.0, 4.0]
batch = 0.25
settings = { split = [0.5, 0.2, 0.3] }
[methods.dpsgd]
[methods.dpsgd-f]
settings.options.max_bound = 2.0
[methods.moments]
option = "floor"
tried = [0.5, 1.0]
[quick]
text = "One epsilon."
[quick.data.digits]
group = "8"
shares = [0.02, 0.05]
epsilons = [8.0]
learning_rates = [4.0]
batch = 0.25
settings = { split = [0.5, 0.2, 0.3] }
"""
BOUND = 0.05


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(TOML)
    return tmp_path / "study.toml"


def same(found: float, expected: float) -> bool:
    """Say whether two shares are equal, or both unknown."""
    return found == expected or (math.isnan(found) and math.isnan(expected))


COSTS = st.dictionaries(st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2, 0.5]), st.tuples(
    st.sampled_from([-0.02, 0.01, 0.049, BOUND, 0.06]), st.sampled_from([0.0, 0.005, 0.05])), min_size=1).map(
        lambda drawn: {share: Estimate(mean, mean - half, mean + half) for share, (mean, half) in drawn.items()})


@given(COSTS)
def test_a_cost_is_borne_from_the_smallest_share_from_which_on_all_intervals_are_below_the_bound(
        by_share: dict[float, Estimate]) -> None:
    found = borne(by_share, BOUND)
    for part, expected in (("high", found.share), ("value", found.by_mean)):
        smallest = math.nan
        for share in by_share:
            larger = [getattr(by_share[other], part) < BOUND for other in by_share if other >= share]
            if all(larger) and not share > smallest:
                smallest = share
        assert same(expected, smallest)
    assert not found.by_mean > found.share
    for share, cost in by_share.items():
        assert (share in found.untold) == (cost.low < BOUND <= cost.high)


def test_a_cost_that_rises_again_at_a_larger_share_is_not_borne_from_the_smaller_one() -> None:
    by_share = {0.01: Estimate(0.0, 0.0, 0.01), 0.1: Estimate(0.2, 0.1, 0.3), 0.3: Estimate(0.01, 0.0, 0.02)}
    assert borne(by_share, BOUND) == Borne(0.3, 0.3, ())
    assert math.isnan(borne({0.3: Estimate(0.2, 0.1, 0.3)}, BOUND).share)


@given(st.integers(1, 5_000), st.integers(1, 5_000), st.floats(0.001, 1))
def test_the_records_that_are_kept_have_the_share_up_to_half_a_record(own: int, others: int, part: float) -> None:
    share = part * own / (own + others)
    left = kept({"a": own, "b": others}, "a", share)
    assert left <= own
    assert abs(left - share * (left + others)) <= 0.5


def test_a_share_that_a_group_has_too_few_records_for_is_refused_with_the_largest_that_it_can_have() -> None:
    with pytest.raises(ValueError, match=r"shares has 0\.5 of group 'a', .* take shares of at most 0\.25"):
        kept({"a": 100, "b": 300}, "a", 0.5)
    assert kept({"a": 100, "b": 300}, "a", 0.25) == 100
    with pytest.raises(ValueError, match="unknown group 'c'"):
        kept({"a": 100, "b": 300}, "c", 0.1)


def test_only_the_group_of_the_training_part_is_thinned_out(config: Path) -> None:
    for entry in plan(load(file=config), "cpu"):
        parts, made = entry.experiment.task.data(), entry.experiment
        whole = made.model_copy(update={"imbalance": None}).task.data()
        sizes = dict(zip(parts.train.names, parts.train.group_sizes(), strict=True))
        before = dict(zip(whole.train.names, whole.train.group_sizes(), strict=True))
        assert {**sizes, "8": 0} == {**before, "8": 0}
        assert sizes["8"] / len(parts.train) == pytest.approx(entry.share, abs=0.5 / len(parts.train))
        for name in ("valid", "test"):
            assert torch.equal(getattr(parts, name).x, getattr(whole, name).x)
        assert made.batch_size == round(0.25 * len(parts.train))


def test_every_method_and_the_reference_are_tuned_over_as_many_values_and_stack(config: Path) -> None:
    entries = plan(load(file=config), "cpu")
    tried = pd.DataFrame([{"method": entry.method, "epsilon": entry.epsilon, "setting": entry.setting,
                           "target": entry.experiment.target_epsilon} for entry in entries])
    assert (tried.groupby(["method", "epsilon"])["setting"].nunique() == 2).all()
    private = tried[tried["method"] != REFERENCE]
    assert (private["epsilon"] == private["target"]).all()
    assert tried[tried["method"] == REFERENCE]["target"].isna().all()
    alone = [entries[place].method for part in stacks([entry.experiment for entry in entries])
             if not part.stack for place in part.places]
    assert {*alone} == {"moments"}


def of_runs(**accuracies: dict[float, tuple[float, float]]) -> pd.DataFrame:
    """Return runs of two seeds: by tuned value the validation accuracy of all, and the test accuracy of the group."""
    return pd.DataFrame([
        {"dataset": "digits", "share": 0.02, "epsilon": math.inf if method == REFERENCE else 1.0, "method": method,
         "setting": value, "seed": seed, "valid": valid + seed / 100, "everybody": 0.5, "accuracy": test - seed / 10}
        for method, by_value in accuracies.items() for value, (valid, test) in by_value.items() for seed in (0, 1)])


def test_a_cost_is_that_of_values_chosen_on_the_validation_part_paired_by_seed() -> None:
    runs = of_runs(sgd={1.0: (0.9, 0.8), 4.0: (0.8, 0.95)}, dpsgd={1.0: (0.7, 0.75), 4.0: (0.8, 0.5)})
    taken = chosen(runs)
    assert taken.groupby("method")["setting"].unique().map(list).to_dict() == {"sgd": [1.0], "dpsgd": [4.0]}
    found = costs(taken)
    assert found["cost"].tolist() == pytest.approx([0.3, 0.3])
    assert found["method"].tolist() == ["dpsgd", "dpsgd"]


def test_a_finding_names_methods_of_one_share_together_and_epsilons_of_one_answer(config: Path) -> None:
    study: Study = load(file=config)
    of_methods = {"dpsgd": (0.1, 0.0), "dpsgd-f": (0.1, 0.01), "moments": (0.0, 0.2)}
    paid = pd.DataFrame([
        {"dataset": "digits", "share": share, "epsilon": epsilon, "method": method, "setting": 1.0, "seed": seed,
         "cost": (cost if epsilon < 3 else 0.2 if epsilon < 8 else 0.0) + seed / 1e4}
        for epsilon in (0.1, 1.0, 3.0, 8.0) for method, by_share in of_methods.items()
        for share, cost in zip((0.02, 0.05), by_share, strict=True) for seed in (0, 1)])
    assert list(findings(study, paid)) == [
        "digits: the cost of group 8 is told to be below 0.05 at epsilon 0.1, 1 from 5 % on with dpsgd, dpsgd-f, at no "
        "share with moments; at epsilon 3 with no method at any share; at epsilon 8 from 2 % on with every method."]


def test_the_surface_is_run_once_and_its_page_has_a_number_for_each_method(config: Path, tmp_path: Path) -> None:
    said = surface(tmp_path / "out", Request(quick=True), file=config)
    assert said.startswith("digits: the cost of group 8 is told to be below 0.05 at epsilon 8 ")
    page = (tmp_path / "out" / "README.md").read_text()
    assert said in page
    assert "| method | epsilon 8 |" in page
    assert all(f"| {method} | " in page for method in ("dpsgd", "dpsgd-f", "moments"))
    paid = pd.read_csv(tmp_path / "out" / "costs.csv")
    assert len(paid) == 2 * 3 * 2
    picture = (tmp_path / "out" / "digits.svg").read_text()
    assert all(f"{method}: share of 8" in picture for method in ("dpsgd", "dpsgd-f", "moments"))
    assert surface(tmp_path / "out", Request(quick=True), file=config,
                   on_round=lambda *_: pytest.fail("a run was made again")) == said


def test_data_sets_that_were_not_asked_for_are_known_and_values_that_are_not_allowed_refused(config: Path) -> None:
    assert load(Request(datasets=("digits",)), config).others == ()
    assert {*load(Request(datasets=("digits",))).others} == {"dutch", "adult", "mnist"}
    with pytest.raises(ValueError, match="unknown data set 'adults'"):
        load(Request(datasets=("adults",)), config)
    config.write_text(TOML.replace("batch = 0.25", "batch = 2"))
    with pytest.raises(SettingsError, match="surface: "):
        load(file=config)


def test_the_configuration_has_data_sets_with_tables_and_images_and_a_smaller_version() -> None:
    whole, quick = load(), load(Request(quick=True))
    assert {"dutch", "digits", "mnist"} <= {*whole.data}
    assert whole.seeds >= 10
    assert quick.seeds < whole.seeds
    assert quick.text
