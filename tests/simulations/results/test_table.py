"""What the terminal says below its table, on figures made by hand."""

from __future__ import annotations

import math

import pandas as pd

from simulations.results.table import unequal_epsilons, verdict

SIZES = {"men": 300, "women": 100}


def summary(**costs: tuple[float, float]) -> pd.DataFrame:
    """Summarise methods by what they cost men and women, at the same epsilon; sgd is right about 0.9 of both."""
    return pd.DataFrame([
        {"strategy": name.replace("_", "-"), "epsilon": math.inf if name == "sgd" else 3.0,
         **{f"privacy_cost_{group}_mean": cost for group, cost in zip(SIZES, own, strict=True)},
         **{f"accuracy_{group}_mean": 0.9 - cost for group, cost in zip(SIZES, own, strict=True)}}
        for name, own in {"sgd": (0.0, 0.0), **costs}.items()])


def told(frame: pd.DataFrame) -> list[str]:
    """Return the verdict as plain sentences."""
    return [line.plain for line in verdict(frame, SIZES)]


def test_the_verdict_is_about_the_group_that_pays_most_under_dpsgd() -> None:
    paid, back = told(summary(dpsgd=(0.05, 0.2), dpsgd_f=(0.2, 0.15), naive=(0.0, 0.18)))
    assert paid == ("Under dpsgd, group women (100 of 400 records) pays most for privacy: 0.200 of its accuracy, "
                    "against 0.900 under sgd.")
    assert back == "dpsgd-f recovers 0.050, more than any other method."


def test_a_single_method_beside_dpsgd_is_not_the_best_of_any() -> None:
    assert told(summary(dpsgd=(0.05, 0.2), dpsgd_f=(0.2, 0.15)))[1] == "dpsgd-f recovers 0.050."
    assert len(told(summary(dpsgd=(0.05, 0.2)))) == 1


def test_the_verdict_says_so_if_nothing_is_given_back_or_nothing_was_lost() -> None:
    assert told(summary(dpsgd=(0.05, 0.2), naive=(0.0, 0.2)))[1] == "No method recovers any of it."
    assert told(summary(dpsgd=(-0.01, 0.0), naive=(0.0, 0.2))) == [
        "Under dpsgd no group has a lower accuracy than under sgd."]


def test_there_is_no_verdict_without_both_or_without_a_known_cost() -> None:
    assert told(summary(naive=(0.1, 0.2))) == []
    assert told(summary(dpsgd=(math.nan, math.nan))) == []
    assert told(summary(dpsgd=(0.1, math.nan)))[0].startswith("Under dpsgd, group men (300 of 400")


def test_epsilons_that_differ_are_told_of_whichever_methods_have_them() -> None:
    frame = summary(naive=(0.0, 0.0), dpsgd_f=(0.0, 0.0))
    assert unequal_epsilons(frame) == []
    assert unequal_epsilons(frame.assign(epsilon=[math.inf, 3.0, 3.3])) == []
    line, = unequal_epsilons(frame.assign(epsilon=[math.inf, 3.0, 3.4]))
    assert line.plain.startswith("Epsilon differs between methods")
    assert unequal_epsilons(summary()) == []
