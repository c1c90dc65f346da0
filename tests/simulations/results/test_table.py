"""What is said around the terminal's table, on figures made by hand: no superlative that the seeds cannot tell."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import pandas as pd
import pytest
from rich.console import Console

from fedfair.accounting import Ledger
from simulations.plans.compare import compare, experiments
from simulations.results.comparison import Comparison
from simulations.results.result import compared
from simulations.results.terminal_table import comparison_table, results_table
from simulations.statistics.measures import marks, measures
from simulations.statistics.over_seeds import comparisons, constant_models, findings
from simulations.statistics.statements import coverage, favourable_sentence, statements, unequal_epsilons, verdict
from simulations.statistics.summary import final_test, summarise

SIZES = {"men": 300, "women": 100}
FEW_SEEDS, ENOUGH = 3, 8


def final(costs: Mapping[str, Sequence[tuple[float, float]]], constant: Mapping[str, int] | None = None,
          records: tuple[float, float] = (60, 40), **rates: tuple[float, float]) -> pd.DataFrame:
    """Return runs by what they cost men and women in each seed; sgd is right about 0.9 of both.

    `constant` says in how many seeds a method predicts one class; `rates` are further metrics of men and women.
    """
    rows = []
    for name, by_seed in {"sgd": [(0.0, 0.0)] * len(next(iter(costs.values()))), **costs}.items():
        for seed, own in enumerate(by_seed):
            accuracies = [0.9 - cost for cost in own]
            classes = 1 if seed < (constant or {}).get(name, 0) else 2
            figures = {("all", "accuracy"): sum(accuracies) / 2, ("all", "loss"): 0.5,
                       ("all", "accuracy_parity"): abs(accuracies[0] - accuracies[1]),
                       ("all", "predicted_classes"): classes, ("all", "majority_rate"): 0.6,
                       ("all", "demographic_parity"): 0.1, ("all", "equal_opportunity"): math.nan,
                       ("all", "equalised_odds"): math.nan,
                       **{("all", metric): 0.5 for metric in rates}}
            for place, group in enumerate(SIZES):
                figures |= {(group, "accuracy"): accuracies[place], (group, "loss"): 0.5,
                            (group, "records"): records[place],
                            **{(group, metric): values[place] for metric, values in rates.items()}}
            rows += [("people", name, seed, 1, "test", group, metric, value)
                     for (group, metric), value in figures.items()]
    return final_test(pd.DataFrame(rows, columns=["dataset", "strategy", "seed", "round", "split", "group", "metric",
                                                  "value"]))


def steady(men: float, women: float, seeds: int = ENOUGH) -> list[tuple[float, float]]:
    """Return costs that differ a little from seed to seed."""
    return [(men + seed / 10_000, women + seed / 10_000) for seed in range(seeds)]


def test_a_group_is_said_to_lose_most_only_where_the_seeds_tell() -> None:
    enough, few = ({"dpsgd": steady(0.05, 0.2, seeds)} for seeds in (ENOUGH, FEW_SEEDS))
    assert verdict(final(enough), SIZES) == [
        "Under dpsgd, group women (100 of 400 records) loses 0.200 of its accuracy on average over 8 seeds, from 0.900 "
        "under sgd, more than any other group."]
    assert verdict(final(few), SIZES)[0].endswith("under sgd; 3 seeds cannot tell which group loses most.")
    swaying = [(0.1, 0.2) if seed % 2 else (0.2, 0.11) for seed in range(ENOUGH)]
    assert verdict(final({"dpsgd": swaying}), SIZES)[0].endswith("8 seeds cannot tell which group loses most.")


def test_a_method_recovers_something_only_where_the_seeds_tell() -> None:
    enough = {"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15), "naive": steady(0.0, 0.18)}
    assert verdict(final(enough), SIZES)[1] == (
        "dpsgd-f recovers 0.050 of it, more than any other method (Wilcoxon, Holm over 2 tests, 8 seeds, p < 0.05).")
    few = {name: costs[:FEW_SEEDS] for name, costs in enough.items()}
    assert verdict(final(few), SIZES)[1] == (
        "dpsgd-f's mean loss there is smaller by 0.050, which 3 seeds cannot tell from chance.")
    one = {name: costs[:1] for name, costs in enough.items()}
    assert verdict(final(one), SIZES)[1].endswith("which one seed cannot tell from chance.")
    alone = {"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15)}
    assert "any other method" not in verdict(final(alone), SIZES)[1]


def test_two_methods_that_recover_alike_are_not_told_apart() -> None:
    alike = [(0.05, 0.15 + (-1) ** seed / 1000) for seed in range(ENOUGH)]
    costs = {"dpsgd": steady(0.05, 0.2), "dpsgd-f": alike, "naive": steady(0.05, 0.1499)}
    line = verdict(final(costs), SIZES)[1]
    assert "recovers 0.05" in line
    assert "any other" not in line


def test_the_verdict_says_so_if_nothing_is_recovered_or_nothing_was_lost() -> None:
    assert verdict(final({"dpsgd": steady(0.05, 0.2), "naive": steady(0.0, 0.2)}), SIZES)[1] == (
        "No other method's mean loss there is smaller.")
    assert verdict(final({"dpsgd": [(-0.01, 0.0)], "naive": [(0.0, 0.2)]}), SIZES) == [
        "Under dpsgd no group has a lower accuracy than under sgd: the least change is 0.000, of group women."]


def test_there_is_no_verdict_without_dpsgd_or_without_a_known_cost() -> None:
    assert verdict(final({"naive": [(0.1, 0.2)]}), SIZES) == []
    assert verdict(final({"dpsgd": [(math.nan, math.nan)]}), SIZES) == []
    assert verdict(final({"dpsgd": [(0.1, math.nan)]}), SIZES)[0].startswith("Under dpsgd, group men (300 of 400")


def test_nothing_is_recovered_against_a_constant_reference_nor_by_a_constant_model() -> None:
    costs = {"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15)}
    reference = final(costs, constant={"sgd": 1})
    assert verdict(reference, SIZES) == []
    lines = findings(measures(reference), comparisons(measures(reference)))
    assert lines[0] == ("sgd predicts one class for every test record in 1 of 8 seeds: no difference from it is a cost "
                        "of privacy.")
    assert not any("ecover" in line or "qual cost" in line for line in lines)
    model = final(costs, constant={"dpsgd-f": 8})
    assert len(verdict(model, SIZES)) == 1
    assert "predicts one class for every test record in 8 of 8 seeds" in constant_models(measures(model))[0]
    assert not any("qual cost" in line and "dpsgd-f" in line
                   for line in findings(measures(model), comparisons(measures(model))))


def test_a_model_no_better_than_the_majority_class_is_named() -> None:
    weak = final({"dpsgd": steady(0.2, 0.2)})
    assert constant_models(measures(weak)) == []
    assert constant_models(measures(final({"dpsgd": steady(0.4, 0.4)}))) == [
        "On average no more accurate than always predicting the majority class (0.600): dpsgd."]


def test_groups_without_records_without_a_label_or_with_few_are_named_with_their_test_records() -> None:
    costs = {"dpsgd": [(0.1, math.nan)]}
    assert coverage(final(costs, records=(60, 0))) == [
        "The cost of group women is unknown: it has no test record. So are equalised odds, and gaps are between the "
        "other groups."]
    sometimes = final({"dpsgd": [(0.1, 0.1)] * 2})
    sometimes.loc[("people", slice(None), 1), ("women", "records")] = 0
    assert coverage(sometimes)[0].startswith("Group women has no test record in 1 of 2 seeds: what it pays there")
    lacking = final({"dpsgd": [(0.1, 0.1)]}, records=(60, 29), true_positive_rate=(0.5, math.nan),
                    false_positive_rate=(0.1, 0.2))
    assert coverage(lacking) == [
        "Equal opportunity is without it, and equalised odds is unknown in 1 of 1 seed: no test record with a "
        "favourable label in group women (29 test records).",
        "Caution: fewer than 30 test records in group women (29)."]
    assert coverage(final({"dpsgd": [(0.1, 0.1)]}, records=(30, 30))) == []


def test_the_best_is_marked_where_the_tests_tell_it_and_the_doubtful_always() -> None:
    runs = final({"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15)}, records=(60, 20))
    marked = marks(runs, comparisons(measures(runs)))
    assert marked.of("sgd", "accuracy") == "*"
    assert marked.of("dpsgd", "accuracy") == ""
    assert marked.of("dpsgd", "accuracy", "women") == "?"
    assert marked.of("dpsgd-f", "privacy_cost_gap") == "*"
    few = final({"dpsgd": steady(0.05, 0.2, 3), "dpsgd-f": steady(0.2, 0.15, 3)})
    assert marks(few, comparisons(measures(few))).best == {}
    constant = final({"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15)}, constant={"sgd": 2})
    assert marks(constant, comparisons(measures(constant))).of("sgd", "accuracy") == "?"
    assert "accuracy" not in {measure for measure, name in marks(constant, comparisons(measures(constant))).best.items()
                              if name == "sgd"}


@pytest.mark.parametrize("colour", [False, True])
def test_marks_stand_in_the_table_in_colour_and_without(colour: bool) -> None:
    runs = final({"dpsgd": steady(0.05, 0.2), "dpsgd-f": steady(0.2, 0.15)}, constant={"dpsgd-f": 2})
    long = runs.stack(["group", "metric"], future_stack=True).rename("value").reset_index()
    long = long.assign(round=1, split="test")
    ledgers = {key: Ledger(tuple(SIZES), 1e-5) for key in runs.index}
    summary = summarise(long, ledgers)
    assert summary.set_index("strategy")["constant_seeds"].to_dict() == {"sgd": 0, "dpsgd": 0, "dpsgd-f": 2}
    said = io.StringIO()
    Console(file=said, width=80, force_terminal=colour, color_system="standard" if colour else None).print(
        comparison_table(summary, SIZES, marks(runs, comparisons(measures(runs)))))
    text = said.getvalue()
    assert "2 of 8" in text
    assert "majority class" in text
    assert "unknown" in text
    assert ".900±.000*" in text
    assert ("\x1b[32m.900" in text) is colour
    assert "? doubtful" in text


def test_everything_that_is_said_begins_with_constant_models() -> None:
    runs = final({"dpsgd": steady(0.05, 0.2)}, constant={"dpsgd": 8})
    summary = pd.DataFrame({"strategy": ["sgd", "dpsgd"], "epsilon": [math.inf, 1.0], "validation_epsilon": [0.0, 0.0]})
    lines = statements(runs, comparisons(measures(runs)), summary, SIZES, [])
    assert lines[0].startswith("dpsgd predicts one class")
    assert len(lines) == len(set(lines))


def test_the_favourable_class_is_always_named() -> None:
    assert favourable_sentence(("no", "yes"), 1, False, "hired") == (
        "Favourable class: 'yes' of hired: rates say how often 'yes' is decided; set favourable to choose another.")
    assert favourable_sentence(("1", "2"), 0, True) == "Favourable class: '1': rates say how often '1' is decided."
    assert favourable_sentence(("a", "b", "c"), None, False).startswith("Favourable class: none of the 3 is named")


def test_epsilons_that_differ_are_told_of_whichever_methods_have_them() -> None:
    def told(*epsilons: float) -> list[str]:
        return list(unequal_epsilons(pd.DataFrame({"epsilon": epsilons})))

    assert told(math.inf, 3.0, 3.3) == told(math.inf) == []
    assert told(math.inf, 3.0, 3.4)[0].startswith("Epsilon differs between methods")


METHODS = ("sgd", "dpsgd", "dpsgd-f", "dpsgd-global-adapt", "gs-dp-sgd", "gs-dp-sgd-to", "dpsgd-p")


@pytest.fixture(scope="module")
def seven() -> Comparison:
    """Return what is shown of seven methods with two seeds each."""
    settings = {"hidden": [8], "steps": 2, "favourable": "1", "split": [0.6, 0.2, 0.2],
                "dpsgd-global-adapt.options.bound": 5.0}
    return compared(compare(experiments(METHODS, [0, 1], None, settings)))


@pytest.mark.parametrize(("width", "tables"), [(60, 3), (80, 2), (120, 1), (200, 1)])
def test_the_table_uses_the_width_there_is(width: int, tables: int, seven: Comparison) -> None:
    said = io.StringIO()
    Console(file=said, width=width).print(results_table(seven))
    lines = said.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("group (records)")]
    assert len(heads) == tables
    assert (heads[0].split()[2:] == list(METHODS)) == (tables == 1)
    assert not any("…" in line for line in lines)


def test_the_best_and_the_doubtful_are_marked_with_colour_and_without(seven: Comparison) -> None:
    for colour in (True, False):
        said = io.StringIO()
        Console(file=said, width=120, force_terminal=colour, no_color=not colour).print(results_table(seven))
        assert "? doubtful" in said.getvalue()
        assert ("\x1b[33m" in said.getvalue()) == colour
