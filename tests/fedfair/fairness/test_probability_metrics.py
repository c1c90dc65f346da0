"""AUC, Brier score and calibration against scikit-learn and plain sums; parts of records that add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score
from torch import Tensor

from fedfair.fairness.group_counts import BINS, GroupCounts, Scores, bins, log_odds, middles
from fedfair.fairness.metrics import ALL, metrics

NAMES = ("first", "second", "third")


def records(seed: int, number: int, classes: int, spread: float, ties: bool, shares: tuple[float, float]
            ) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, labels and groups: the third group is never there, and labels follow the logits somewhat."""
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(number, classes, generator=draws, dtype=torch.float64) * spread
    if ties:
        logits = logits.round()
    y = (logits + torch.randn(number, classes, generator=draws, dtype=torch.float64) * spread).argmax(1)
    group = (torch.rand(number, generator=draws) < shares[0]).long()
    y[torch.rand(number, generator=draws) < shares[1]] = 0
    return logits, y, group


def counted(logits: Tensor, y: Tensor, group: Tensor, favourable: int | None) -> GroupCounts:
    zeros = GroupCounts.zeros(3, logits.shape[1])
    nothing = torch.zeros(len(y))
    return GroupCounts.of(logits.argmax(1), y, group, nothing, nothing, zeros, Scores(logits, favourable))


def measured(counts: GroupCounts, favourable: int | None) -> dict[tuple[str, str], float]:
    return {(group, name): value for group, name, value in metrics(counts, NAMES, favourable)}


def expected_error(stated: np.ndarray, occurred: np.ndarray) -> float:
    """Return the expected calibration error, part by part."""
    parts = np.minimum((stated * 10).astype(int), 9)
    sums = [abs(stated[parts == part].mean() - occurred[parts == part].mean()) * (parts == part).mean()
            for part in set(parts)]
    return float(sum(sums))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.integers(0, 80), st.sampled_from([2, 3, 6]), st.sampled_from([0.01, 1.0, 8.0]),
       st.booleans(), st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.6, 1.0])),
       st.sampled_from([None, 0, 1]))
def test_they_are_those_of_scikit_learn(seed: int, number: int, classes: int, spread: float, ties: bool,
                                        shares: tuple[float, float], favourable: int | None) -> None:
    logits, y, group = records(seed, number, classes, spread, ties, shares)
    found = measured(counted(logits, y, group, favourable), favourable)
    named = 1 if favourable is None and classes == 2 else favourable
    for k, name in [(None, ALL), *enumerate(NAMES)]:
        own = torch.ones(number, dtype=torch.bool) if k is None else group == k
        p, labels = logits[own].softmax(1).numpy(), y[own].numpy()
        if not len(labels):
            for metric in ("auc", "auc_error", "brier_score", "calibration_error", "balanced_accuracy"):
                assert math.isnan(found[name, metric])
            continue
        onehot = np.eye(classes)[labels]
        brier = brier_score_loss(labels, p[:, 1], labels=[0, 1], pos_label=1) if classes == 2 else (
            (p - onehot) ** 2).sum(1).mean()
        assert found[name, "brier_score"] == pytest.approx(brier, abs=1e-9)
        stated, occurred = (p.max(1), p.argmax(1) == labels) if named is None else (p[:, named], labels == named)
        assert found[name, "calibration_error"] == pytest.approx(expected_error(stated, occurred), abs=1e-9)
        if named is None or len(set(labels == named)) < 2:
            assert math.isnan(found[name, "auc"])
        else:
            exact = roc_auc_score(labels == named, log_odds(logits[own], named))
            assert abs(found[name, "auc"] - exact) <= found[name, "auc_error"] + 1e-12
        if len(set(labels)) == classes:
            assert found[name, "balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, p.argmax(1)))
        else:
            assert math.isnan(found[name, "balanced_accuracy"])


def test_the_histogram_is_fine_and_its_bins_are_in_order() -> None:
    odds = torch.linspace(-200, 200, 100_001, dtype=torch.float64)
    assert bool((bins(odds).diff() >= 0).all())
    assert (int(bins(odds).min()), int(bins(odds).max())) == (0, BINS - 1)
    inside = odds[odds.abs() < 90]
    assert float((middles()[bins(inside)] - torch.sigmoid(inside)).abs().max()) < 0.002
    assert bool(bins(torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)).ge(0).all())


def test_the_area_is_within_a_thousandth_of_that_of_the_scores() -> None:
    logits, y, group = records(0, 20_000, 2, 1.0, False, (0.5, 0.5))
    found = measured(counted(logits, y, group, None), None)
    exact = roc_auc_score(y, log_odds(logits, 1))
    assert abs(found[ALL, "auc"] - exact) <= found[ALL, "auc_error"] < 0.005
    assert found[ALL, "auc"] == pytest.approx(exact, abs=0.001)


def test_sums_over_parts_of_the_records_add_up() -> None:
    logits, y, group = records(1, 90, 3, 1.0, True, (0.5, 0.0))
    whole, parts = counted(logits, y, group, 2), [counted(logits[rows], y[rows], group[rows], 2)
                                                  for rows in (slice(0, 31), slice(31, 90))]
    for name, value in (parts[0] + parts[1]).tensors().items():
        torch.testing.assert_close(value, whole.tensors()[name])


def test_a_model_whose_output_is_no_number_has_no_score() -> None:
    logits = torch.full((4, 2), math.nan, dtype=torch.float64)
    found = measured(counted(logits, torch.tensor([0, 1, 0, 1]), torch.zeros(4).long(), None), None)
    assert math.isnan(found[ALL, "brier_score"])
    assert found[ALL, "auc"] == 0.5
