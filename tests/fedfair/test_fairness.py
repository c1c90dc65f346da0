"""Metrics against plain loops over records."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedfair.fairness import ALL, GroupCounts, largest_gap, metrics


def measured(classes: int, groups: int, seed: int = 0) -> tuple[dict[tuple[str, str], float], tuple[np.ndarray, ...]]:
    """Metrics of random predictions, and the records they are of."""
    rng = np.random.default_rng(seed)
    predicted, y = rng.integers(0, classes, (2, 200))
    group, losses, norms = rng.integers(0, groups, 200), rng.random(200), rng.random(200)
    empty = GroupCounts.zeros(groups, classes)
    parts = [GroupCounts.of(*(torch.tensor(v[a:b]) for v in (predicted, y, group, losses, norms)), empty)
             for a, b in ((0, 120), (120, 200))]
    rows = metrics(parts[0] + parts[1], tuple(f"g{k}" for k in range(groups)))
    return {(name, metric): value for name, metric, value in rows}, (predicted, y, group, losses, norms)


@pytest.mark.parametrize("seed", range(5))
def test_two_classes_agree_with_loops(seed: int) -> None:
    found, (predicted, y, group, losses, norms) = measured(2, 3, seed)
    accuracy, positive, true_positive, false_positive = [], [], [], []
    for k in range(3):
        own = [i for i in range(200) if group[i] == k]
        accuracy.append(sum(predicted[i] == y[i] for i in own) / len(own))
        positive.append(sum(predicted[i] == 1 for i in own) / len(own))
        for label, rates in ((1, true_positive), (0, false_positive)):
            labelled = [i for i in own if y[i] == label]
            rates.append(sum(predicted[i] == 1 for i in labelled) / len(labelled))
        assert found[f"g{k}", "accuracy"] == pytest.approx(accuracy[k])
        assert found[f"g{k}", "loss"] == pytest.approx(sum(losses[i] for i in own) / len(own))
        assert found[f"g{k}", "gradient_norm"] == pytest.approx(sum(norms[i] for i in own) / len(own))
    assert found[ALL, "accuracy"] == pytest.approx((predicted == y).mean())
    for gap, values in (("accuracy_parity", accuracy), ("demographic_parity", positive),
                        ("equal_opportunity", true_positive)):
        assert found[ALL, gap] == pytest.approx(max(values) - min(values))
    odds = max(max(v) - min(v) for v in (true_positive, false_positive))
    assert found[ALL, "equalised_odds"] == pytest.approx(odds)


def test_rates_of_positives_need_two_classes() -> None:
    found, (predicted, y, _, _, _) = measured(4, 2)
    assert math.isnan(found[ALL, "demographic_parity"])
    assert found[ALL, "accuracy"] == pytest.approx((predicted == y).mean())


def test_a_group_without_records_is_no_number_and_no_gap() -> None:
    y, predicted, group = torch.tensor([0] * 4 + [1] * 2), torch.zeros(6).long(), torch.tensor([0] * 4 + [1] * 2)
    counts = GroupCounts.of(predicted, y, group, torch.zeros(6), torch.zeros(6), GroupCounts.zeros(3, 2))
    found = {(name, metric): value for name, metric, value in metrics(counts, ("a", "b", "c"))}
    assert math.isnan(found["c", "accuracy"])
    assert found[ALL, "accuracy_parity"] == 1
    assert math.isnan(largest_gap([1.0, math.nan]))
