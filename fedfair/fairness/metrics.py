"""Metrics by group, and the gaps between groups: one table, `METRICS`, which every result follows.

Each metric is computed once for each group, and a gap is the largest difference between groups. Definitions: accuracy
parity and demographic parity, Yang et al. 2024, equations 1-2; equalised odds and equal opportunity, Hardt et al. 2016.
A prediction is positive if it is the favourable class. Of two classes that is 1; with more, rates of positive
predictions are NaN unless a favourable class is named. A gap is over the groups that have the rate. Equalised odds,
which is made of two rates, is NaN if any group lacks one of them.

Metrics of the probabilities that a model gives are from the sums of `fedfair.fairness.group_counts`. They are NaN for
records without probabilities. A threshold changes decisions, and so none of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from fedfair.fairness.group_counts import (
    GroupCounts,
    Sums,
    auc,
    auc_error,
    brier_score,
    calibration_error,
    favourable_of,
    rate,
)
from fedfair.plugins.registry import ALL_GROUPS

ALL = ALL_GROUPS
"""The name of all groups together."""

Compute = Callable[[Sums, int | None], float]
"""From a group's sums and the favourable class, if there is one, to a number; NaN where it has no value."""

Source = Literal["counts", "losses", "probabilities", "groups", "runs"]
"""What a metric is computed from: a group's labels and decisions, its losses, the probabilities that the model gives,
the metrics of the groups, or a run and its reference."""

Place = Literal["summary", "groups", "table", "training", "tests", "front", "fit groups", "fit sites", "fit all"]
"""Where results show a metric.

- summary: mean and deviation over the seeds, of all records, in summary.csv;
- groups: means by group and by site there, and in the report's further metrics;
- table: the first table of a terminal, a notebook and a report;
- training: the report's figures during the training;
- tests: the paired tests between methods, whose best is marked;
- front: the report's figure of accuracy against fairness and epsilon;
- fit groups, fit sites, fit all: the page and the card of a fit, by group, by site and of all groups together.
"""


@dataclass(frozen=True)
class Metric:
    """A metric: how it is computed, and how results show it.

    Attributes:
        name: Its name in results.
        compute: How it is computed from a group's sums; None if it is from groups or runs, or is only released with
            noise (see `fedfair.fairness.noisy_figures`).
        of: What it is computed from.
        over: Of a gap, the metrics whose largest difference between groups it is.
        larger_is_better: Its sense; None if it has none.
        title: Heading of its columns; by default the name without underscores.
        words: What it is called on the page of a fit; by default the title.
        least: The least that it can be.
        most: The most; a share has 1.
        digits: Decimals in tables of a terminal and of a notebook.
        shown: Where results show it.
    """

    name: str
    compute: Compute | None = None
    of: Source = "counts"
    over: tuple[str, ...] = ()
    larger_is_better: bool | None = None
    title: str = ""
    words: str = ""
    least: float = -math.inf
    most: float = math.inf
    digits: int = 3
    shown: tuple[Place, ...] = ("summary", "groups", "table")

    def __post_init__(self) -> None:
        title = self.title or self.name.replace("_", " ")
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "words", self.words or title)

    def __call__(self, sums: Sums, favourable: int | None) -> float:
        """Return the metric of the records that some sums are over."""
        return self.compute(sums, favourable) if self.compute else math.nan


def find(name: str) -> Metric:
    """Return a metric by name; one that only a run was asked for, as of scikit-learn, is shown like a user's own."""
    return METRICS.get(name) or Metric(name)


def shown_in(place: Place) -> list[Metric]:
    """Return the metrics of the table that are shown in a place, in its order."""
    return [each for each in METRICS.values() if place in each.shown]


def computed() -> dict[str, Metric]:
    """Return the metrics by name that are computed from a group's sums."""
    return {name: each for name, each in METRICS.items() if each.compute}


def gaps_over(known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the gaps by name whose metrics are known, with these metrics."""
    return {name: each.over for name, each in METRICS.items() if each.over and set(each.over) <= set(known)}


def metric(name: str, **how: Any) -> Callable[[Compute], Compute]:
    """Return a decorator that enters a metric.

    Args:
        name: Its name in results.
        how: Other attributes of `Metric`: its sense, its title, where it is shown.

    Examples:
        >>> @metric("error", larger_is_better=False, least=0.0, most=1.0)
        ... def error(sums, favourable):
        ...     return 1 - METRICS["accuracy"](sums, favourable)
        >>> METRICS.pop("error").shown
        ('summary', 'groups', 'table')
    """

    def enter(compute: Compute) -> Compute:
        """Enter the metric, and return it unchanged."""
        METRICS[name] = Metric(name, compute, **how)
        return compute

    return enter


_NO_MORE: Mapping[str, Compute] = {}


def metrics(counts: GroupCounts, names: tuple[str, ...], favourable: int | None = None,
            further: Mapping[str, Compute] = _NO_MORE) -> Iterator[tuple[str, str, float]]:
    """Yield the metrics of each group and of all records, then the gaps.

    Args:
        counts: Sums over the evaluated records.
        names: Names of the groups, in the order of their numbers.
        favourable: Class whose prediction is positive; by default 1 of two classes, and none of more.
        further: Metrics by name besides `METRICS`.

    Yields:
        Group or "all", metric, and value. A rate over no record is NaN. Gradient norms are left out if all are zero.

    Examples:
        >>> import torch
        >>> by_label_and_decision = torch.tensor([[[8, 2], [1, 9]], [[9, 1], [4, 6]]])  # of women, of men
        >>> for group, name, value in metrics(GroupCounts.of_decisions(by_label_and_decision), ("women", "men")):
        ...     if name in ("accuracy", "accuracy_parity", "equal_opportunity"):
        ...         print(group, name, round(value, 3))
        all accuracy 0.8
        women accuracy 0.85
        men accuracy 0.75
        all accuracy_parity 0.1
        all equal_opportunity 0.3
    """
    yield from _measured({**computed(), **further}, counts, names, favourable)


def metrics_of_decisions(confusion: Tensor, names: tuple[str, ...], favourable: int | None = None
                         ) -> Iterator[tuple[str, str, float]]:
    """Yield the metrics that follow from decisions alone, and their gaps, as `metrics` does.

    Args:
        confusion: Number of records with each label and decision, `[K, classes, classes]`.
        names: Names of the K groups.
        favourable: Class whose prediction is positive; by default 1 of two classes, and none of more.

    Examples:
        >>> import torch
        >>> by_label_and_decision = torch.tensor([[[8, 2], [1, 9]], [[9, 1], [4, 6]]])
        >>> [name for _, name, _ in metrics_of_decisions(by_label_and_decision, ("women", "men"))][:3]
        ['records', 'accuracy', 'predicted_classes']
    """
    every = {name: each for name, each in computed().items() if each.of == "counts"}
    yield from _measured(every, GroupCounts.of_decisions(confusion), names, favourable)


def _measured(every: Mapping[str, Compute], counts: GroupCounts, names: tuple[str, ...], favourable: int | None
              ) -> Iterator[tuple[str, str, float]]:
    """Yield some metrics of each group and of all records, then the gaps of those."""
    favourable = favourable_of(favourable, counts.labels.shape[1])
    rows = [_row(every, sums, favourable) for sums in counts.by_group()]
    overall = _row(every, counts.overall(), favourable)
    for group, row in ((ALL, overall), *zip(names, rows, strict=True)):
        for name, value in row.items():
            if name != "gradient_norm" or bool(counts.gradient_norms.any()):
                yield group, name, value
    for gap, over in gaps_over(every).items():
        yield ALL, gap, _gap([[row[name] for row in rows] for name in over])


def _row(computed: Mapping[str, Compute], sums: Sums, favourable: int | None) -> dict[str, float]:
    """Return all metrics of the records that some sums are over."""
    return {name: compute(sums, favourable) for name, compute in computed.items()}


def _gap(rates: list[list[float]]) -> float:
    """Return the largest gap of one or several rates by group; of several, NaN if any group lacks one of them."""
    unknown = len(rates) > 1 and any(math.isnan(value) for values in rates for value in values)
    return math.nan if unknown else max(largest_gap(values) for values in rates)


def largest_gap(values: list[float]) -> float:
    """Return the largest difference between two values.

    Args:
        values: Values by group; a NaN is left out.

    Returns:
        The difference; NaN for fewer than two values.

    Examples:
        >>> largest_gap([0.75, 0.5, math.nan]), largest_gap([0.75])
        (0.25, nan)
    """
    numbers = [value for value in values if not math.isnan(value)]
    return max(numbers) - min(numbers) if len(numbers) > 1 else math.nan


def _records(sums: Sums, favourable: int | None) -> float:
    """Return the number of records."""
    return float(sums["labels"].sum())


def _mean(name: str) -> Compute:
    """Return the mean over the records of what is summed under a name: losses, norms, or 1 for a right prediction."""
    return lambda sums, favourable: rate(float(sums[name].sum()), _records(sums, favourable))


def _predicted_classes(sums: Sums, favourable: int | None) -> float:
    """Return how many classes are predicted for any record: of a next-word model, its active vocabulary."""
    return float((sums["predicted"] > 0).sum())


def _positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records for which the favourable class is predicted."""
    if favourable is None:
        return math.nan
    return rate(float(sums["predicted"][favourable]), _records(sums, favourable))


def _true_positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records of the favourable class for which it is predicted."""
    if favourable is None:
        return math.nan
    return rate(float(sums["correct"][favourable]), float(sums["labels"][favourable]))


def _false_positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records of the other classes for which the favourable class is predicted."""
    if favourable is None:
        return math.nan
    predicted, labelled, both = (float(sums[name][favourable]) for name in ("predicted", "labels", "correct"))
    return rate(predicted - both, _records(sums, favourable) - labelled)


def _majority_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records with the most frequent label: the accuracy of always predicting it."""
    return rate(float(sums["labels"].max()), _records(sums, favourable))


def _balanced_accuracy(sums: Sums, favourable: int | None) -> float:
    """Return the mean over the classes of the share of their records that are recognised; NaN if a class has none."""
    return float((sums["correct"] / sums["labels"]).mean())


_SHARE: Mapping[str, Any] = {"larger_is_better": True, "least": 0.0, "most": 1.0}
_FAULT: Mapping[str, Any] = {"larger_is_better": False, "least": 0.0, "most": 1.0}

METRICS: dict[str, Metric] = {each.name: each for each in (
    Metric("records", _records, least=0.0, digits=0, words="records, about", shown=("fit groups", "fit sites")),
    Metric("accuracy", _mean("correct"), **_SHARE,
           shown=("summary", "table", "training", "tests", "fit groups", "fit sites")),
    Metric("loss", _mean("losses"), "losses", larger_is_better=False, least=0.0,
           shown=("summary", "training", "tests")),
    Metric("gradient_norm", _mean("gradient_norms"), "losses", least=0.0, shown=()),
    Metric("predicted_classes", _predicted_classes, least=0.0, digits=0, shown=()),
    Metric("positive_rate", _positive_rate, least=0.0, most=1.0, words="selection rate",
           shown=("fit groups", "fit sites")),
    Metric("true_positive_rate", _true_positive_rate, **_SHARE, title="recall", words="true positive rate",
           shown=("groups", "fit groups", "fit sites")),
    Metric("false_positive_rate", _false_positive_rate, **_FAULT, shown=("fit groups", "fit sites")),
    Metric("precision", **_SHARE, shown=("summary", "groups", "table", "fit groups", "fit sites")),
    Metric("accuracy_parity", of="groups", over=("accuracy",), **_FAULT,
           words="accuracy parity: largest difference of accuracies",
           shown=("summary", "table", "tests", "front", "fit all")),
    Metric("demographic_parity", of="groups", over=("positive_rate",), **_FAULT,
           words="demographic parity: largest difference of selection rates",
           shown=("summary", "table", "front", "fit all")),
    Metric("selection_ratio", of="groups", **_SHARE, words="smallest selection rate over the largest",
           shown=("summary", "groups", "fit all")),
    Metric("equal_opportunity", of="groups", over=("true_positive_rate",), **_FAULT,
           words="equal opportunity: largest difference of true positive rates", shown=("summary", "table", "fit all")),
    Metric("equalised_odds", of="groups", over=("true_positive_rate", "false_positive_rate"), **_FAULT,
           words="equalised odds: largest difference of true or of false positive rates",
           shown=("summary", "table", "fit all")),
    Metric("predictive_parity", of="groups", over=("precision",), **_FAULT,
           words="predictive parity: largest difference of precision", shown=("summary", "groups", "fit all")),
    Metric("worst_group_accuracy", of="groups", **_SHARE, words="accuracy of the worst group",
           shown=("summary", "groups", "fit all")),
    Metric("privacy_cost_gap", of="runs", **_FAULT, shown=("table", "tests")),
    Metric("excessive_risk_gap", of="runs", larger_is_better=False, least=0.0, shown=("table", "tests")),
    Metric("majority_rate", _majority_rate, least=0.0, most=1.0, words="share of the most frequent class",
           shown=("fit all",)),
    Metric("balanced_accuracy", _balanced_accuracy, **_SHARE,
           words="balanced accuracy: mean over the classes of how many of each are decided rightly",
           shown=("summary", "groups", "fit all")),
    Metric("auc", auc, "probabilities", **_SHARE, title="AUC", shown=("summary", "groups", "fit groups", "fit sites")),
    Metric("auc_error", auc_error, "probabilities", least=0.0, most=0.5, shown=()),
    Metric("brier_score", brier_score, "probabilities", larger_is_better=False, least=0.0, words="Brier score",
           shown=("summary", "groups", "fit groups")),
    Metric("calibration_gap", None, "probabilities", least=-1.0, most=1.0,
           shown=("summary", "groups", "fit groups", "fit sites")),
    Metric("calibration_error", calibration_error, "probabilities", **_FAULT,
           shown=("summary", "groups", "fit groups")))}
"""All metrics and gaps by name, in the order in which results list them."""
