"""Cells agree with published ones, keep their order, and are as significant: what each of these means."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from simulations.plans.compare import compare, experiments
from simulations.reproductions.cells import CHANCE, claim_tests, compared, half_unit, orders, strategy_name, values
from simulations.reproductions.markdown import sentence
from simulations.reproductions.published import Published, load
from simulations.results.result import identified
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons
from simulations.statistics.summary import final_test, gap, privacy_costs
from tests.for_each import for_each

SETTINGS = {"hidden": [6], "epochs": 1, "imbalance": "", "split": [0.5, 0.0, 0.5], "eval_every": 5}


def published(**changes: Any) -> Published:
    return Published(**{"title": "t", "preset": "digits", "seeds": 1, "published_seeds": 1, "datasets": {"D": {}},
                        "methods": {"SGD": {"strategy": "sgd"}, "A": {"strategy": "dpsgd"}},
                        "quick": {"text": "q", "seeds": 1}, **changes})


def cell(printed: str, spread: str = "", **changes: str) -> dict[str, str]:
    return {"dataset": "D", "method": "A", "group": "all", "metric": "accuracy", "published": printed,
            "spread": spread, **changes}


def found(*by_seed: float) -> dict[str, pd.DataFrame]:
    index = pd.MultiIndex.from_tuples([("D", "A", seed) for seed in range(len(by_seed))],
                                      names=["dataset", "strategy", "seed"])
    return {"accuracy": pd.DataFrame({"all": list(by_seed)}, index=index)}


def agrees(printed: str, spread: str, *ours: float, **changes: Any) -> str:
    return str(compared(published(**changes), pd.DataFrame([cell(printed, spread)]), found(*ours))["agrees"].item())


def test_agreement_is_within_two_published_spreads_and_rounding() -> None:
    assert half_unit("0.80") == 0.005
    assert agrees("0.80", "0.01", 0.834) == "yes"  # 2 (0.01 + 0.005) + 0.005
    assert agrees("0.80", "0.01", 0.836) == "no"
    assert agrees("0.80", "0.01", 0.766) == "yes"
    assert agrees("0.80", "0.01", 0.764) == "no"
    assert agrees("80", "1", 0.834, percent=["accuracy"]) == "yes"
    assert agrees("80", "1", 0.837, percent=["accuracy"]) == "no"
    assert agrees("0.80", "", 0.809) == "no"
    assert agrees("0.80", "", 0.809, truncated=True) == "yes"
    assert agrees("0.80", "", 0.811, truncated=True) == "no"


def test_a_gap_between_two_groups_is_the_size_of_the_mean_difference() -> None:
    index = pd.MultiIndex.from_tuples([("D", "A", seed) for seed in range(2)], names=["dataset", "strategy", "seed"])
    gaps = {"privacy_cost_gap": pd.DataFrame({"gap": [-0.3, 0.1]}, index=index)}
    row = pd.DataFrame([cell("0.10", "0.001", group="gap", metric="privacy_cost_gap")])
    found = compared(published(), row, gaps)
    assert found["ours"].item() == pytest.approx(0.1)
    assert found["ours_deviation"].item() == pytest.approx(math.sqrt(0.08))
    assert found["agrees"].item() == "yes"


def test_without_a_published_spread_ours_counts() -> None:
    assert agrees("0.80", "", 0.81, 0.83) == "yes"  # mean 0.82, two deviations 0.028
    assert agrees("0.80", "", 0.85, 0.87) == "no"
    assert agrees("0.80", "", 0.804) == "yes"
    assert agrees("0.80", "", 0.806) == "no"


def chance(deviation: str, ours: tuple[float, ...], published_seeds: int, kind: str) -> str:
    """Judge our runs beside a published 0.800."""
    table = published(published_seeds=published_seeds, spread=kind)
    return str(compared(table, pd.DataFrame([cell("0.800", deviation)]), found(*ours))["note"].item())


@for_each(("deviation", "own", "published_seeds", "kind", "error"), [
    # one run, which has the published deviation, and the published mean's own error
    ("0.010", (0.0,), 5, "standard error", math.hypot(math.sqrt(5) * 0.0105, 0.0105)),
    ("0.010", (0.0,), 5, "standard deviation", math.hypot(0.0105, 0.0105 / math.sqrt(5))),
    # five runs, whose mean has an error of 0.01
    ("0.001", (-2.0, -1.0, 0.0, 1.0, 2.0), 5, "standard error", math.hypot(0.01, 0.0015)),
    ("0.001", (-2.0, -1.0, 0.0, 1.0, 2.0), 5, "standard deviation", math.hypot(0.01, 0.0015 / math.sqrt(5))),
    # nothing published: a run of theirs has our deviation
    ("", (-2.0, -1.0, 0.0, 1.0, 2.0), 1, "none", math.hypot(0.01, 0.01 * math.sqrt(5))),
])
def test_what_two_errors_of_the_difference_explain_is_chance(
        deviation: str, own: tuple[float, ...], published_seeds: int, kind: str, error: float) -> None:
    edge = 0.8 + 2 * error + 0.0005
    inside, outside = ([mean + 0.01 * math.sqrt(2) * value for value in own] for mean in (edge - 1e-6, edge + 1e-6))
    assert chance(deviation, tuple(inside), published_seeds, kind) == CHANCE
    assert chance(deviation, tuple(outside), published_seeds, kind) == ""


def test_chance_is_no_word_for_what_agrees_or_nobody_knows() -> None:
    assert chance("0.010", (0.81,), 5, "standard error") == ""
    assert chance("", (0.9,), 5, "none") == ""


def test_a_note_of_ours_goes_before_chance() -> None:
    notes = [{"method": "A", "text": "known"}]
    table = published(published_seeds=5, spread="standard error", notes=notes)
    assert list(compared(table, pd.DataFrame([cell("0.800", "0.010")]), found(0.83))["note"]) == ["known"]


def test_a_cell_that_was_not_run_says_why_and_never_counts_as_agreeing() -> None:
    table = published(datasets={"D": {}, "E": {"missing": "lost"}}, missing={"B": "no such method"})
    rows = [cell("0.8"), cell("0.8", method="B"), cell("0.8", dataset="E"), cell("0.8", group="Z")]
    result = compared(table, pd.DataFrame(rows), found(0.8))
    assert list(result["agrees"]) == ["yes", "not run", "not run", "not run"]
    assert list(result["note"]) == ["", "no such method", "lost", "the runs have no such number"]
    assert sentence(result) == "1 of 1 cells agree. 3 were not run."
    left_out = compared(published(methods={"A": {"strategy": "dpsgd"}, "B": {"strategy": "naive"}}),
                        pd.DataFrame([cell("0.8", method="B")]), found(0.8))
    assert list(left_out["note"]) == ["not asked for"]
    nothing = compared(published(), pd.DataFrame([cell("0.8")]), found(0.8, math.nan))
    assert (list(nothing["agrees"]), list(nothing["note"])) == (["not run"], ["the runs have no such number"])


def test_a_note_on_the_metric_goes_before_one_on_the_whole_method() -> None:
    table = published(notes=[{"method": "A", "text": "the method"}, {"method": "A", "metric": "accuracy", "text": "it"},
                             {"dataset": "E", "metric": "accuracy", "text": "elsewhere"}])
    assert list(compared(table, pd.DataFrame([cell("0.9")]), found(0.8))["note"]) == ["it"]
    without = published(notes=[{"method": "A", "text": "the method"}])
    assert list(compared(without, pd.DataFrame([cell("0.9")]), found(0.8))["note"]) == ["the method"]


def test_a_note_is_about_the_cells_that_it_names_and_so_many_seeds() -> None:
    notes = [{"method": ["A", "B"], "group": "all", "seeds": 1, "text": "of one seed"}, {"group": "8", "text": "no"}]
    cells = pd.DataFrame([cell("0.9")])
    assert list(compared(published(notes=notes), cells, found(0.8))["note"]) == ["of one seed"]
    assert list(compared(published(notes=notes), cells, found(0.8, 0.8))["note"]) == [""]


def test_orders_count_only_pairs_that_the_paper_tells_apart() -> None:
    cells = pd.DataFrame([
        {**cell(printed, method=method), "ours": ours, "agrees": "yes"}
        for method, printed, ours in (("A", "0.1", 0.3), ("B", "0.2", 0.1), ("C", "0.2", 0.2), ("E", "0.9", 0.8))])
    order, = orders(cells, ("accuracy",))
    assert (order.pairs, order.same) == (5, 3)
    assert order.turned == (("A", "B"), ("A", "C"))
    assert (order.apart, order.same_apart) == (5, 3)
    spread, = orders(cells.assign(spread=["0.045", "0.03", "", ""]), ("accuracy",))
    assert (spread.pairs, spread.apart, spread.same_apart) == (5, 4, 3)  # A and B could be the other way round
    assert order.ours == ("B", "C", "A", "E")
    assert orders(cells, ("loss",)) == []


def test_methods_that_we_find_alike_are_not_in_the_published_order() -> None:
    """0.1 and 0.22 differ: their combined spread is 0.05, though 0.07 if the spreads were added."""
    cells = pd.DataFrame([{**cell(printed, spread, method=method), "ours": 0.5, "agrees": "no"}
                          for method, printed, spread in (("A", "0.10", "0.03"), ("B", "0.22", "0.04"))])
    order, = orders(cells, ("accuracy",))
    assert (order.pairs, order.same, order.turned) == (1, 0, (("A", "B"),))
    assert (order.apart, order.same_apart) == (1, 0)


def test_one_method_is_the_reference_though_several_are_plain() -> None:
    published, _ = load("bagdasaryan2019")
    names = {method: strategy_name(published, method) for method in published.methods}
    assert [method for method, name in names.items() if name == "sgd"] == ["SGD"]
    assert len(set(names.values())) == len(names)


def test_values_are_those_of_the_runs() -> None:
    results = compare(experiments(["sgd", "dpsgd"], [0, 1], "digits", {"dataset": "digits", **SETTINGS}))
    metrics = identified(results)
    held = values(metrics, {"digits": ("2", "8")})
    rows = metrics[metrics["round"] == metrics["round"].max()].set_index(
        ["strategy", "seed", "split", "group", "metric"])["value"]
    for seed in (0, 1):
        def of(strategy: str, group: str, metric: str, split: str = "test", seed: int = seed) -> float:
            return float(rows[strategy, seed, split, group, metric])

        costs = {group: of("sgd", group, "accuracy") - of("dpsgd", group, "accuracy") for group in ("2", "8")}
        risks = {group: of("dpsgd", group, "loss") - of("sgd", group, "loss") for group in ("2", "8")}
        run = ("digits", "dpsgd", seed)
        assert held["privacy_cost"].loc[run, "8"] == pytest.approx(costs["8"])
        assert held["accuracy_change"].loc[run, "8"] == pytest.approx(-costs["8"])
        assert held["privacy_cost_gap"].loc[run, "gap"] == pytest.approx(costs["2"] - costs["8"])
        assert held["excessive_risk"].loc[run, "2"] == pytest.approx(risks["2"])
        assert held["excessive_risk_gap"].loc[run, "gap"] == pytest.approx(risks["2"] - risks["8"])
        assert held["train_loss"].loc[run, "8"] == of("dpsgd", "8", "loss", "train")
        assert held["train_gradient_norm"].loc[run, "2"] == of("dpsgd", "2", "gradient_norm", "train")
        trained, risk = values(metrics, {"digits": ("2", "8")}, "train"), of("dpsgd", "8", "loss", "train")
        assert trained["loss"].loc[run, "8"] == risk
        risk -= of("sgd", "8", "loss", "train")
        assert trained["excessive_risk"].loc[run, "8"] == pytest.approx(risk)
        assert trained["accuracy"].loc[run, "8"] == held["accuracy"].loc[run, "8"]
        assert trained["privacy_cost_gap"].loc[run, "gap"] == held["privacy_cost_gap"].loc[run, "gap"]
    of_all = values(metrics, {})["privacy_cost_gap"].loc["digits", "dpsgd"]["gap"]
    assert list(of_all) == pytest.approx(list(summary_gaps(metrics)))


def test_a_gap_between_two_of_many_groups_keeps_its_sign_for_every_seed() -> None:
    accuracies = {"sgd": [(0.9, 0.9, 0.9)] * 2, "dpsgd": [(0.7, 0.8, 0.1), (0.8, 0.75, 0.1)]}
    rows = [{"dataset": "D", "strategy": strategy, "seed": seed, "round": 1, "split": split, "group": group,
             "metric": metric, "value": value}
            for strategy, by_seed in accuracies.items() for seed, by_group in enumerate(by_seed)
            for group, value in zip(("2", "8", "5"), by_group, strict=True) for metric in ("accuracy", "loss")
            for split in ("train", "test")]
    gaps = values(pd.DataFrame(rows), {"D": ("2", "8")})["privacy_cost_gap"].loc["D", "dpsgd"]["gap"]
    assert list(gaps) == pytest.approx([0.1, -0.05])


def summary_gaps(metrics: pd.DataFrame) -> pd.Series[float]:
    """Return the largest difference between two groups' costs, for each seed of dpsgd."""
    return gap(privacy_costs(final_test(metrics))).loc["digits", "dpsgd"]


def test_claims_are_tested_between_the_methods_and_the_groups_that_they_name() -> None:
    groups = {seed: {"sgd": (0.9, 0.9), "A": (0.8, 0.8 - 0.01 * seed), "B": (0.8, 0.7)} for seed in range(5)}
    rows = [{"dataset": "D", "strategy": strategy, "seed": seed, "round": 1, "split": "test", "group": group,
             "metric": metric, "value": value}
            for seed, by_method in groups.items() for strategy, (two, eight) in by_method.items()
            for metric in ("accuracy", "loss", "accuracy_parity")
            for group, value in (("2", two), ("8", eight), ("3", 0.1 * seed), ("all", (two + eight) / 2))]
    claims = [{"better": "A", "worse": ["B", "C"], "metric": ["privacy_cost_gap", "accuracy"]}]
    methods = {"SGD": {"strategy": "sgd"}, "A": {"strategy": "dpsgd"}, "B": {"strategy": "dpsgd-f"}}
    every = comparisons(measures(final_test(pd.DataFrame(rows)), {"D": ("2", "8")}))
    found = claim_tests(published(claims=claims, methods=methods), every)
    assert [(test.metric, test.better, test.worse, test.seeds) for test in found] == [
        ("privacy_cost_gap", "A", "B", 5), ("accuracy", "A", "B", 5)]
    assert found[0].difference == pytest.approx(-0.08)
    assert [test.p for test in found] == pytest.approx([1 / 32, 1 / 32])
    assert [test.p_holm for test in found] == pytest.approx([1 / 16, 1 / 16])
