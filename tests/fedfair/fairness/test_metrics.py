"""Metrics by group against plain loops over records; absent groups, and gaps that are not a number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import ALL, computed, largest_gap, metrics

NAMES = ("first", "second", "third")


def drawn(records: int, classes: int, seed: int, absent: int | None = None) -> tuple[Tensor, ...]:
    """Random predictions, labels, groups, losses and norms."""
    draw = torch.Generator().manual_seed(seed)
    predicted, y, group = (torch.randint(end, (records,), generator=draw) for end in (classes, classes, 3))
    kept = torch.ones(records, dtype=torch.bool) if absent is None else group != absent
    losses, norms = torch.rand(2, records, generator=draw, dtype=torch.float64) + 0.1
    return tuple(values[kept] for values in (predicted, y, group, losses, norms))


def measured(data: tuple[Tensor, ...], classes: int, names: tuple[str, ...] = NAMES) -> dict[tuple[str, str], float]:
    rows = list(metrics(GroupCounts.of(*data, GroupCounts.zeros(len(names), classes)), names))
    assert len({row[:2] for row in rows}) == len(rows)
    return {(group, metric): value for group, metric, value in rows}


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def slow(data: tuple[Tensor, ...], classes: int) -> dict[tuple[str, str], float]:
    """Compute the same without equalised odds, one record at a time."""
    records = list(zip(*(values.tolist() for values in data), strict=True))
    result: dict[tuple[str, str], float] = {}
    for k, name in [(None, ALL), *enumerate(NAMES)]:
        own = [r for r in records if k is None or r[2] == k]
        result[name, "records"] = len(own)
        result[name, "accuracy"] = mean([float(p == y) for p, y, *_ in own])
        result[name, "loss"] = mean([loss for *_, loss, _ in own])
        result[name, "predicted_classes"] = len({p for p, *_ in own})
        labels = [y for _, y, *_ in own]
        result[name, "majority_rate"] = max(map(labels.count, labels)) / len(labels) if labels else math.nan
        recalls = [mean([float(p == c) for p, y, *_ in own if y == c]) for c in range(classes)]
        result[name, "balanced_accuracy"] = mean(recalls)
        of_probabilities = [metric.name for metric in computed().values() if metric.of == "probabilities"]
        result.update(dict.fromkeys(((name, metric) for metric in of_probabilities), math.nan))
        if records:
            result[name, "gradient_norm"] = mean([norm for *_, norm in own])
        rates = {"positive_rate": own, "true_positive_rate": [r for r in own if r[1] == 1],
                 "false_positive_rate": [r for r in own if r[1] == 0]}
        for metric, among in rates.items():
            result[name, metric] = mean([float(p == 1) for p, *_ in among]) if classes == 2 else math.nan
    for gap, metric in (("accuracy_parity", "accuracy"), ("demographic_parity", "positive_rate"),
                        ("equal_opportunity", "true_positive_rate")):
        values = [result[name, metric] for name in NAMES if not math.isnan(result[name, metric])]
        result[ALL, gap] = max(abs(a - b) for a in values for b in values) if len(values) > 1 else math.nan
    return result


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 60), st.sampled_from([2, 3, 10]), st.integers(0, 10**6), st.sampled_from([None, 0, 2]))
def test_metrics_equal_a_plain_loop(records: int, classes: int, seed: int, absent: int | None) -> None:
    data = drawn(records, classes, seed, absent)
    found = measured(data, classes)
    del found[ALL, "equalised_odds"]
    assert found == pytest.approx(slow(data, classes), nan_ok=True)


def test_equalised_odds_is_the_worse_of_both_rates_whichever_it_is() -> None:
    group, y = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    for predicted, metric in ((torch.tensor([0, 1, 1, 1]), "false_positive_rate"),
                              (torch.tensor([0, 1, 0, 0]), "true_positive_rate")):
        found = measured((predicted, y, group, torch.ones(4), torch.ones(4)), 2, ("m", "f"))
        assert abs(found["m", metric] - found["f", metric]) == found[ALL, "equalised_odds"] == 1


def test_equalised_odds_is_unknown_where_one_of_its_rates_is() -> None:
    """Without a positive label in the second group its true positive rate is unknown; without a negative, the other."""
    group, y, predicted = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 0]), torch.tensor([0, 1, 1, 1])
    one, other = (measured((p, labels, group, torch.ones(4), torch.ones(4)), 2, ("m", "f"))
                  for p, labels in ((predicted, y), (1 - predicted, 1 - y)))
    assert math.isnan(one[ALL, "equal_opportunity"])
    assert other[ALL, "equal_opportunity"] == 1
    assert math.isnan(one[ALL, "equalised_odds"])
    assert math.isnan(other[ALL, "equalised_odds"])


def test_equalised_odds_is_unknown_if_one_of_three_groups_lacks_a_rate() -> None:
    group, y = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 1, 0])
    found = measured((torch.tensor([0, 1, 1, 1, 0]), y, group, torch.ones(5), torch.ones(5)), 2)
    assert found[ALL, "equal_opportunity"] == 0
    assert math.isnan(found[ALL, "equalised_odds"])


def test_counts_of_parts_add_up() -> None:
    data = drawn(50, 2, 0)
    whole = GroupCounts.of(*data, GroupCounts.zeros(3, 2))
    first, second = (GroupCounts.of(*(values[rows] for values in data), whole)
                     for rows in (slice(0, 20), slice(20, 50)))
    for name, value in (first + second).tensors().items():
        torch.testing.assert_close(value, whole.tensors()[name])


@pytest.mark.parametrize(("classes", "favourable"), [(4, 2), (2, 0)])
def test_a_favourable_class_is_named_against_all_others(classes: int, favourable: int) -> None:
    confusion = torch.randint(0, 9, (2, classes, classes), generator=torch.Generator().manual_seed(0)).double()
    counts = GroupCounts(confusion.sum(2), confusion.sum(1), confusion.diagonal(dim1=1, dim2=2), *torch.zeros(2, 2))
    found = {(name, metric): value for name, metric, value in metrics(counts, ("a", "b"), favourable)}
    for k, name in enumerate("ab"):
        cells = [(y, z, float(confusion[k, y, z])) for y in range(classes) for z in range(classes)]
        for metric, labels in (("positive_rate", range(classes)), ("true_positive_rate", [favourable]),
                               ("false_positive_rate", [y for y in range(classes) if y != favourable])):
            within = sum(n for y, _, n in cells if y in labels)
            assert found[name, metric] == pytest.approx(
                sum(n for y, z, n in cells if y in labels and z == favourable) / within)


def test_a_group_without_records_is_no_number_and_no_gap() -> None:
    y, predicted, group = torch.tensor([0] * 4 + [1] * 2), torch.zeros(6).long(), torch.tensor([0] * 4 + [1] * 2)
    counts = GroupCounts.of(predicted, y, group, torch.zeros(6), torch.zeros(6), GroupCounts.zeros(3, 2))
    found = {(name, metric): value for name, metric, value in metrics(counts, ("a", "b", "c"))}
    assert math.isnan(found["c", "accuracy"])
    assert found[ALL, "accuracy_parity"] == 1
    assert math.isnan(largest_gap([1.0, math.nan]))
