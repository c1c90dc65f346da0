"""Metrics of scikit-learn by name: from sums, equal to those from records."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.fairness.group_counts import GroupCounts, Scores
from fedfair.fairness.metrics import ALL, metrics
from fedfair.fairness.sklearn_metrics import find_metric, further

NAMES = ("matthews_corrcoef", "f1_macro", "jaccard_score", "cohen_kappa_score", "sklearn:recall_macro", "zero_one_loss",
         "balanced_accuracy")


def counted(logits: torch.Tensor, y: torch.Tensor, group: torch.Tensor, favourable: int | None) -> GroupCounts:
    nothing, zeros = torch.zeros(len(y)), GroupCounts.zeros(2, logits.shape[1], confusion=True)
    return GroupCounts.of(logits.argmax(1), y, group, nothing, nothing, zeros, Scores(logits, favourable))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([None, 0, 1]))
def test_metrics_of_decisions_are_exact(seed: int, number: int, favourable: int | None) -> None:
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(number, 2, generator=draws, dtype=torch.float64)
    y, group = torch.randint(2, (2, number), generator=draws)
    wanted = further(NAMES, 2, favourable)
    found = {(g, m): v for g, m, v in metrics(counted(logits, y, group, favourable), ("a", "b"), favourable, wanted)}
    for k, name in ((None, ALL), (0, "a"), (1, "b")):
        own = torch.ones(number, dtype=torch.bool) if k is None else group == k
        labels, predicted = y[own].numpy(), logits[own].argmax(1).numpy()
        if favourable == 0:
            labels, predicted = 1 - labels, 1 - predicted
        if len(labels) and len(set(labels)) == len(set(predicted)) == 2:
            assert found[name, "matthews_corrcoef"] == pytest.approx(
                sklearn.metrics.matthews_corrcoef(labels, predicted))
            macro = sklearn.metrics.f1_score(labels, predicted, average="macro")
            assert found[name, "f1_macro"] == pytest.approx(macro)
            assert found[name, "jaccard_score"] == pytest.approx(sklearn.metrics.jaccard_score(labels, predicted))
            assert found[name, "zero_one_loss"] == pytest.approx(np.mean(labels != predicted))
            assert found[name, "sklearn:balanced_accuracy"] == pytest.approx(found[name, "balanced_accuracy"])


def test_metrics_of_scores_are_those_of_the_scores_up_to_the_histogram() -> None:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, 2, generator=draws, dtype=torch.float64)
    y, group = torch.randint(2, (2, 5000), generator=draws)
    wanted = further(("average_precision", "neg_log_loss"), 2, None)
    found = {(g, m): v for g, m, v in metrics(counted(logits, y, group, None), ("a", "b"), None, wanted)}
    p = logits.softmax(1)[:, 1].numpy()
    assert found[ALL, "average_precision"] == pytest.approx(sklearn.metrics.average_precision_score(y, p), abs=1e-3)
    assert found[ALL, "neg_log_loss"] == pytest.approx(-sklearn.metrics.log_loss(y, p), abs=1e-3)


def test_what_scikit_learn_calls_undefined_is_no_number() -> None:
    y, group = torch.zeros(4).long(), torch.tensor([0, 0, 1, 1])
    logits = torch.tensor([[1.0, 0.0]]).expand(4, 2).double()
    wanted = further(("recall", "average_precision"), 2, None)
    found = {(g, m): v for g, m, v in metrics(counted(logits, y, group, None), ("a", "b"), None, wanted)}
    assert math.isnan(found["a", "recall"])


@pytest.mark.parametrize(("names", "classes", "says"), [
    (("mathews_corrcoef",), 2, "did you mean 'matthews_corrcoef'"),
    (("silhouette_score",), 2, "does not compute from labels, decisions or scores"),
    (("f1",), 3, "refuses for 3 classes: .*average"),
    (("roc_auc",), 3, "say which is favourable"),
    (("f1_macro",), 1000, "1,000 classes, and at most 256"),
])
def test_metrics_that_do_not_fit_are_refused_with_the_reason(names: tuple[str, ...], classes: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        further(names, classes, None)


def test_a_name_may_carry_its_library() -> None:
    assert find_metric("sklearn:f1_macro").name == find_metric("f1_macro").name == "f1_macro"
    assert find_metric("accuracy").name == "sklearn:accuracy"
