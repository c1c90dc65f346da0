"""Spreads, tests and verdicts compared with values worked out by hand."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.plans.compare import compare, experiments
from simulations.report import tables
from simulations.results.result import identified
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons, equal_cost, findings, holm, spread, wilcoxon_less
from simulations.statistics.summary import final_test


def measured(gaps: dict[str, list[float]]) -> pd.DataFrame:
    """Return runs with the given privacy cost gaps, and with the same other measures everywhere."""
    index = pd.MultiIndex.from_tuples([("adult", name, seed) for name, values in gaps.items()
                                       for seed in range(len(values))], names=["dataset", "strategy", "seed"])
    frame = pd.DataFrame({"accuracy": 0.8, "loss": 0.5, "accuracy_parity": 0.1, "excessive_risk_gap": 0.2}, index=index)
    frame["privacy_cost_gap"] = list(itertools.chain(*gaps.values()))
    return frame


def test_spread_is_that_of_a_sample() -> None:
    assert spread([1.0, 2.0, 6.0]) == pytest.approx((3.0, math.sqrt(7), math.sqrt(7 / 3)))
    assert spread([2.0])[0] == 2
    assert math.isnan(spread([2.0]).deviation)


@given(st.integers(3, 9), st.integers(0, 10_000))
def test_wilcoxon_counts_sign_patterns(n: int, seed: int) -> None:
    """The oracle: of all 2^n ways to sign the ranks, the share with a positive sum as small as the one found."""
    signs = [(seed >> i) & 1 for i in range(n)]
    differences = [(rank + 1) * (1 if sign else -1) / 100 for rank, sign in enumerate(signs)]
    found = sum(rank + 1 for rank, sign in enumerate(signs) if sign)
    ways = sum(sum(rank + 1 for rank, s in enumerate(pattern) if s) <= found
               for pattern in itertools.product((0, 1), repeat=n))
    second = [0.5 + 0.1 * i for i in range(n)]
    first = [b + d for b, d in zip(second, differences, strict=True)]
    assert wilcoxon_less(first, second) == pytest.approx(ways / 2**n)


def test_wilcoxon_leaves_ties_with_zero_out() -> None:
    assert wilcoxon_less([1, 2, 3], [1, 2, 3]) == 1
    assert wilcoxon_less([1, 2, 3, 4, 5, 9], [2, 4, 6, 8, 10, 9]) == pytest.approx(1 / 32)
    assert wilcoxon_less([0.8 - 0.7] * 5, [0.9 - 0.8] * 5) == wilcoxon_less([0.9 - 0.8] * 5, [0.8 - 0.7] * 5) == 1


def test_holm_steps_down_and_never_up() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([]) == []


def test_a_clear_difference_is_found_and_its_opposite_is_not() -> None:
    seeds = 8
    runs = measured({"dpsgd": [0.1 + 0.001 * s for s in range(seeds)],
                     "dpsgd-f": [0.02 - 0.002 * s for s in range(seeds)], "sgd": [0.0] * seeds})
    tested = comparisons(runs).set_index(["metric", "better", "worse"])
    row = tested.loc["privacy_cost_gap", "dpsgd-f", "dpsgd"]
    assert (row["p"], row["p_holm"], row["comparisons"]) == (2**-8, 2 * 2**-8, 2)
    assert row["difference"] < -0.08
    assert tested.loc["privacy_cost_gap", "dpsgd", "dpsgd-f"]["p_holm"] == 1
    assert "sgd" not in tested.loc["privacy_cost_gap"].index.get_level_values("better")
    assert tested.loc["accuracy"]["p"].eq(1).all()
    assert tested.loc["accuracy", "dpsgd", "sgd"]["comparisons"] == 6


def test_the_verdict_is_about_the_mean_gap() -> None:
    runs = measured({"sgd": [0.0, 0.0], "dpsgd": [0.04, 0.08], "dpsgd-f": [0.01, 0.05]})
    assert equal_cost(runs) == {"sgd": True, "dpsgd": False, "dpsgd-f": True}
    assert equal_cost(runs, tau=0.07) == {"sgd": True, "dpsgd": True, "dpsgd-f": True}


def test_findings_say_when_seeds_are_too_few_and_when_they_are_enough() -> None:
    few = measured({"dpsgd": [0.1, 0.2], "dpsgd-f": [0.01, 0.02]})
    lines = findings(few, comparisons(few))
    assert lines == ["Not told by the seeds whether the mean gap in the cost of privacy is at most 0.05: dpsgd (0.150, "
                     "0.000 to 0.785), dpsgd-f (0.015, 0.000 to 0.079).",
                     "2 seeds cannot tell methods apart: 2 one-sided Wilcoxon tests, corrected by Holm, need at "
                     "least 6 for p < 0.05."]
    many = measured({"dpsgd": [0.1 + s / 100 for s in range(6)], "dpsgd-f": [0.01 - s / 1000 for s in range(6)]})
    told = findings(many, comparisons(many))
    assert told[:2] == ["Equal cost of privacy (mean gap, and its 95 % interval over seeds, at most 0.05): dpsgd-f.",
                        "Unequal cost of privacy (mean gap, and its 95 % interval over seeds, above 0.05): dpsgd."]
    assert told[-1].endswith("dpsgd-f below dpsgd.")


def test_only_seeds_that_both_methods_ran_are_tested_and_counted() -> None:
    gaps = {"dpsgd": [0.1, 0.2, 0.1, 0.2, 0.1, 0.2], "dpsgd-f": [0.01, 0.02, 0.01, 0.02, 0.01, 0.02]}
    runs = measured(gaps).reset_index()
    one = runs[(runs["strategy"] == "dpsgd") | (runs["seed"] == 5)].set_index(["dataset", "strategy", "seed"])
    assert findings(one, comparisons(one))[-1].startswith("1 seed cannot tell methods apart: 2 one-sided")
    none = runs[(runs["strategy"] == "dpsgd") == (runs["seed"] < 3)].set_index(["dataset", "strategy", "seed"])
    assert findings(none, comparisons(none))[-1] == (
        "No seed has a gap between groups for two methods: there are no pairs to test.")


def test_a_third_method_with_fewer_seeds_takes_none_from_the_others() -> None:
    gaps = {"dpsgd": [0.1, 0.2] * 4, "dpsgd-f": [0.01, 0.02] * 4, "naive": [0.1]}
    tested = comparisons(measured(gaps)).query("metric == 'privacy_cost_gap'").set_index(["better", "worse"])
    assert tested.loc[("dpsgd-f", "dpsgd"), "seeds"] == 8
    assert tested.loc[("dpsgd-f", "dpsgd"), "p"] == pytest.approx(2.0**-8)
    assert tested.loc[("naive", "dpsgd"), "seeds"] == 1


def test_a_gap_of_tau_is_at_most_tau() -> None:
    assert equal_cost(measured({"dpsgd": [0.90 - 0.85]})) == {"dpsgd": True}
    assert equal_cost(measured({"dpsgd": [0.0500001]})) == {"dpsgd": False}


def test_runs_that_do_not_exist_are_no_runs() -> None:
    rows = [("adult", strategy, seed, round_, "test", group, metric, 0.5)
            for strategy, seed in (("sgd", 0), ("sgd", 1), ("dpsgd", 0)) for round_ in (1, 2)
            for group, metric in (("all", "accuracy"), ("all", "accuracy_parity"), ("f", "accuracy"))]
    final = final_test(pd.DataFrame(rows, columns=["dataset", "strategy", "seed", "round", "split", "group", "metric",
                                                   "value"]))
    assert sorted(final.index) == [("adult", "dpsgd", 0), ("adult", "sgd", 0), ("adult", "sgd", 1)]
    assert len(final.columns) == 3


def test_a_verdict_is_about_the_pair_of_groups_that_a_data_set_has() -> None:
    accuracies = {"sgd": (0.9, 0.9, 0.9), "dpsgd": (0.8, 0.82, 0.5)}
    rows = [(dataset, strategy, 0, 1, "test", group, metric, value) for dataset in ("mnist", "other")
            for strategy, by_group in accuracies.items() for metric in ("accuracy", "loss", "accuracy_parity")
            for group, value in zip(("2", "8", "5", "all"), (*by_group, 0.7), strict=True)]
    final = final_test(pd.DataFrame(rows, columns=["dataset", "strategy", "seed", "round", "split", "group", "metric",
                                                   "value"]))
    gaps = measures(final, {"mnist": ("2", "8")})["privacy_cost_gap"]
    assert gaps["mnist", "dpsgd", 0] == pytest.approx(0.02)
    assert gaps["other", "dpsgd", 0] == pytest.approx(0.32)
    alone = measures(final.loc[["mnist"]], {"mnist": ("2", "8")})
    assert findings(alone, comparisons(alone), ("2", "8")) == [
        "Not told by the seeds whether the mean gap between 2 and 8 in the cost of privacy is at most 0.05: dpsgd "
        "(0.020)."]
    every = measures(final.loc[["mnist"]])
    assert findings(every, comparisons(every)) == [
        "Not told by the seeds whether the mean gap in the cost of privacy is at most 0.05: dpsgd (0.320)."]


def test_measures_of_real_runs_are_against_sgd_of_the_same_seed() -> None:
    results = compare(experiments(["sgd", "dpsgd"], [0, 1], None, {"hidden": [8], "epochs": 1}))
    final = final_test(identified(results))
    found = measures(final)
    for seed in (0, 1):
        ours, reference = final.loc["digits", "dpsgd", seed], final.loc["digits", "sgd", seed]
        for metric, gap, sign in (("accuracy", "privacy_cost_gap", -1), ("loss", "excessive_risk_gap", 1)):
            by_group = [sign * (ours[str(k), metric] - reference[str(k), metric]) for k in range(10)]
            assert found.loc[("digits", "dpsgd", seed), gap] == pytest.approx(max(by_group) - min(by_group))
            assert found.loc[("digits", "sgd", seed), gap] == 0


def test_methods_that_are_alike_are_listed_as_better_in_neither_direction() -> None:
    runs = measured({"dpsgd": [0.1] * 6, "dpsgd-f": [0.1] * 6, "naive": [0.3] * 6})
    table = tables.tests_table(  # type: ignore[arg-type]
        SimpleNamespace(tests=comparisons(runs)))
    listed = {(row[1], row[2]) for row in table.rows if row[0] == "privacy cost gap"}
    assert listed == {("dpsgd", "naive"), ("dpsgd-f", "naive")}


def test_differences_are_significant_after_holms_correction_or_not_at_all() -> None:
    """A p-value of 2 in 128 is below 0.05 alone, but not times 6; with five seeds none can be below it times 2."""
    seven = [0.1 + s / 1000 for s in range(7)]
    smaller = [value - difference for value, difference in zip(seven, (-0.001, *(s / 100 for s in range(1, 7))),
                                                               strict=True)]
    about = [value + (-1) ** s * 1e-4 for s, value in enumerate(seven)]
    runs = measured({"dpsgd": seven, "dpsgd-f": smaller, "naive": about})
    tested = comparisons(runs)
    row = tested.set_index(["metric", "better", "worse"]).loc["privacy_cost_gap", "dpsgd-f", "dpsgd"]
    assert (row["p"], row["p_holm"]) == (2 / 128, 12 / 128)
    assert row["difference"] == pytest.approx(-0.209 / 7)
    assert findings(runs, tested)[-1] == (
        "No difference in privacy cost gap is significant (Wilcoxon, Holm over 6 tests, 7 seeds).")
    five = measured({"dpsgd": seven[:5], "dpsgd-f": [value - 0.05 for value in seven[:5]]})
    assert findings(five, comparisons(five))[-1].startswith("5 seeds cannot tell methods apart: 2 one-sided")


def test_the_most_seeds_of_any_test_decide_whether_methods_can_be_told_apart() -> None:
    gaps = {"dpsgd": [0.1 + s / 1000 for s in range(8)], "dpsgd-f": [s / 1000 for s in range(8)], "naive": [0.1]}
    runs = measured(gaps)
    assert findings(runs, comparisons(runs))[-1].startswith(
        "Significant in privacy cost gap (Wilcoxon, Holm over 6 tests, 8 seeds): dpsgd-f below dpsgd")


def test_a_small_difference_is_one() -> None:
    assert wilcoxon_less([0.5 - 1e-5 * s for s in range(1, 6)], [0.5] * 5) == 1 / 32


def test_without_a_reference_methods_are_told_apart_by_accuracy_parity() -> None:
    parity = [0.1 + s / 100 for s in range(6)] + [0.01 - s / 1000 for s in range(6)]
    runs = measured({"dpsgd": [math.nan] * 6, "dpsgd-f": [math.nan] * 6}).assign(accuracy_parity=parity)
    assert findings(runs, comparisons(runs)) == [
        "Significant in accuracy parity (Wilcoxon, Holm over 2 tests, 6 seeds): dpsgd-f below dpsgd."]
