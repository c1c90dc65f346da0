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
from tests.for_each import for_each

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


RIGHT, MIXED, WRONG = (1, 1, 1), (1, 1, 0), (0, 0, 0)
"""Decisions for records of the favourable class."""
NEVER = ("matthews_corrcoef", "balanced_accuracy", "recall_macro", "roc_auc", "d2_brier_score", "d2_log_loss_score",
         "r2", "explained_variance")
ALWAYS = ("accuracy", "zero_one_loss", "hamming_loss", "f1_micro", "recall_weighted", "neg_log_loss", "neg_brier_score",
          "neg_root_mean_squared_error")
NEEDS = [*((name, y, decided, False) for name in NEVER for y in (0, 1) for decided in (RIGHT, MIXED, WRONG)),
         *((name, y, decided, True) for name in ALWAYS for y in (0, 1) for decided in (RIGHT, MIXED, WRONG)),
         *((name, 1, decided, True) for name in ("average_precision", "recall", "f1", "jaccard")
           for decided in (RIGHT, MIXED, WRONG)),
         *((name, 0, decided, False) for name in ("average_precision", "recall") for decided in (RIGHT, MIXED, WRONG)),
         *((name, 0, decided, decided != RIGHT) for name in ("f1", "jaccard", "precision")
           for decided in (RIGHT, MIXED, WRONG)),
         *((name, y, decided, decided != RIGHT) for name in ("cohen_kappa_score", "f1_macro", "jaccard_macro")
           for y in (0, 1) for decided in (RIGHT, MIXED, WRONG)),
         ("precision", 1, RIGHT, True), ("precision", 1, MIXED, True), ("precision", 1, WRONG, False)]
"""Metric, the one label that a group has, whether its decisions are right, and whether the metric has a value."""


@pytest.mark.parametrize("favourable", [0, 1])
def test_a_metric_of_a_group_with_one_label_is_unknown_where_it_needs_the_other(favourable: int) -> None:
    """The label is given as the favourable class or not, so that both numbers of classes say the same."""
    wanted, other = further(tuple({name for name, *_ in NEEDS}), 2, favourable), 1 - favourable
    for y in (0, 1):
        for right in (RIGHT, MIXED, WRONG):
            labels = torch.full((3,), favourable if y else other)
            decided = torch.where(torch.tensor(right) > 0, labels, 1 - labels)
            logits = torch.nn.functional.one_hot(decided, 2) * torch.tensor([[1.0], [2.0], [3.0]]).double()
            rows = metrics(counted(logits, labels, torch.zeros(3).long(), favourable), ("a", "b"), favourable, wanted)
            found = {m: v for g, m, v in rows if g == "a"}
            for name, given_y, given_right, known in NEEDS:
                if (given_y, given_right) == (y, right):
                    value = found[find_metric(name).name]
                    assert math.isfinite(value) if known else math.isnan(value), (name, y, right, value)


def test_a_metric_of_several_classes_is_unknown_where_it_needs_one_that_a_group_lacks() -> None:
    y, logits = torch.tensor([0, 1, 0, 1]), torch.eye(3)[torch.tensor([0, 1, 1, 1])].double()
    wanted = further(("f1_macro", "f1_weighted", "matthews_corrcoef", "balanced_accuracy"), 3, None)
    rows = metrics(counted(logits, y, torch.zeros(4).long(), None), ("a", "b"), None, wanted)
    found = {m: v for g, m, v in rows if g == "a"}
    assert math.isnan(found["f1_macro"])
    assert math.isnan(found["sklearn:balanced_accuracy"])
    assert found["f1_weighted"] == pytest.approx(
        sklearn.metrics.f1_score([0, 1, 0, 1], [0, 1, 1, 1], average="weighted"))
    assert found["matthews_corrcoef"] == pytest.approx(sklearn.metrics.matthews_corrcoef([0, 1, 0, 1], [0, 1, 1, 1]))


def test_log_loss_of_a_group_with_one_label_is_that_of_its_scores() -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, 2.0]]).double()
    wanted = further(("neg_log_loss",), 2, None)
    rows = metrics(counted(logits, torch.ones(2).long(), torch.zeros(2).long(), None), ("a", "b"), None, wanted)
    found = {m: v for g, m, v in rows if g == "a"}
    assert found["neg_log_loss"] == pytest.approx(float(logits.log_softmax(1)[:, 1].mean()), rel=0.01)


@for_each(("names", "classes", "says"), [
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
