"""Metrics by group, and the gaps between groups.

Each metric is computed once for each group, and a gap is the largest difference between groups. Definitions: accuracy
parity and demographic parity, Yang et al. 2024, equations 1-2; equalised odds and equal opportunity, Hardt et al. 2016.
A prediction is positive if it is the favourable class. Of two classes that is 1; with more, rates of positive
predictions are NaN unless a favourable class is named. A gap is over the groups that have the rate. Equalised odds,
which is made of two rates, is NaN if any group lacks one of them.

Metrics of the probabilities that a model gives, from the sums of `fedfair.fairness.group_counts`.

All are NaN for records without probabilities. A threshold changes decisions, and so none of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts, Sums, favourable_of
from fedfair.plugins.registry import ALL_GROUPS


def auc(sums: Sums, favourable: int | None) -> float:
    """Return the area under the ROC curve of the favourable class, from a histogram of the scores."""
    others, own = _by_score(sums)
    below = others.cumsum(0) - others
    return _ratio((own * (below + others / 2)).sum(), own.sum() * others.sum())


def auc_error(sums: Sums, favourable: int | None) -> float:
    """Return the most by which `auc` can differ from that of the scores themselves: half of the pairs in one bin."""
    others, own = _by_score(sums)
    return _ratio((own * others).sum() / 2, own.sum() * others.sum())


def brier_score(sums: Sums, favourable: int | None) -> float:
    """Return the mean squared error of the probabilities, summed over the classes if there are more than two."""
    return _ratio(sums.get("squared_errors", _NOTHING), _levels(sums)[:, 0].sum())


def calibration_error(sums: Sums, favourable: int | None) -> float:
    """Return the expected calibration error over ten equal parts of [0, 1].

    It is that of the favourable class's probability; without one, of the most probable class (Guo et al. 2017).
    """
    records, stated, occurred = _levels(sums).unbind(1)
    return _ratio((stated - occurred).abs().sum(), records.sum())


OF_PROBABILITIES = {"auc": auc, "auc_error": auc_error, "brier_score": brier_score,
                    "calibration_error": calibration_error}
"""The metrics by name."""

_NOTHING = torch.zeros(())


def _levels(sums: Sums) -> Tensor:
    """Return records, sums of probabilities and occurrences by probability."""
    return sums.get("calibration", torch.zeros(1, 3))


def _by_score(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return the numbers of records without and with the favourable label, by their scores' bins."""
    counts = sums.get("scores", torch.zeros(1, 2)).double()
    return counts[:, 0], counts[:, 1]


def _ratio(part: Tensor, whole: Tensor) -> float:
    """Return `part / whole`, NaN if `whole` is 0."""
    return float(part / whole) if float(whole) else math.nan


ALL = ALL_GROUPS
"""The name of all groups together."""

GAPS = {"accuracy_parity": ("accuracy",), "demographic_parity": ("positive_rate",),
        "equal_opportunity": ("true_positive_rate",), "equalised_odds": ("true_positive_rate", "false_positive_rate")}
"""Gaps by name, and the metrics whose largest difference between groups they are."""


Metric = Callable[[Sums, int | None], float]
"""From a group's sums and the favourable class, if there is one, to a number; NaN where it has no value."""

METRICS: dict[str, Metric] = {}
"""The metrics by name, in the order in which results list them."""


def metric(name: str) -> Callable[[Metric], Metric]:
    """Return a decorator that enters a metric.

    Args:
        name: Its name in results.
    """

    def enter(compute: Metric) -> Metric:
        """Enter the metric, and return it unchanged."""
        METRICS[name] = compute
        return compute

    return enter


_NO_MORE: Mapping[str, Metric] = {}


def metrics(counts: GroupCounts, names: tuple[str, ...], favourable: int | None = None,
            further: Mapping[str, Metric] = _NO_MORE) -> Iterator[tuple[str, str, float]]:
    """Yield the metrics of each group and of all records, then the gaps.

    Args:
        counts: Sums over the evaluated records.
        names: Names of the groups, in the order of their numbers.
        favourable: Class whose prediction is positive; by default 1 of two classes, and none of more.
        further: Metrics by name besides `METRICS`.

    Yields:
        Group or "all", metric, and value. A rate over no record is NaN. Gradient norms are left out if all are zero.
    """
    favourable, computed = favourable_of(favourable, counts.labels.shape[1]), {**METRICS, **further}
    sums = counts.tensors()
    by_group = [{name: values[k] for name, values in sums.items()} for k in range(len(names))]
    rows = [_row(computed, of_group, favourable) for of_group in by_group]
    overall = _row(computed, {name: values.sum(0) for name, values in sums.items()}, favourable)
    for group, row in ((ALL, overall), *zip(names, rows, strict=True)):
        for name, value in row.items():
            if name != "gradient_norm" or bool(counts.gradient_norms.any()):
                yield group, name, value
    for gap, over in GAPS.items():
        yield ALL, gap, _gap([[row[name] for row in rows] for name in over])


def _row(computed: Mapping[str, Metric], sums: Sums, favourable: int | None) -> dict[str, float]:
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
    """
    numbers = [value for value in values if not math.isnan(value)]
    return max(numbers) - min(numbers) if len(numbers) > 1 else math.nan


@metric("records")
def _records(sums: Sums, favourable: int | None) -> float:
    """Return the number of records."""
    return float(sums["labels"].sum())


@metric("accuracy")
def _accuracy(sums: Sums, favourable: int | None) -> float:
    """Return the share of records whose label is predicted."""
    return _rate(float(sums["correct"].sum()), _records(sums, favourable))


@metric("loss")
def _loss(sums: Sums, favourable: int | None) -> float:
    """Return the mean loss."""
    return _rate(float(sums["losses"]), _records(sums, favourable))


@metric("gradient_norm")
def _gradient_norm(sums: Sums, favourable: int | None) -> float:
    """Return the mean norm of the per-example gradients."""
    return _rate(float(sums["gradient_norms"]), _records(sums, favourable))


@metric("predicted_classes")
def _predicted_classes(sums: Sums, favourable: int | None) -> float:
    """Return how many classes are predicted for any record: of a next-word model, its active vocabulary."""
    return float((sums["predicted"] > 0).sum())


@metric("positive_rate")
def _positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records for which the favourable class is predicted."""
    if favourable is None:
        return math.nan
    return _rate(float(sums["predicted"][favourable]), _records(sums, favourable))


@metric("true_positive_rate")
def _true_positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records of the favourable class for which it is predicted."""
    if favourable is None:
        return math.nan
    return _rate(float(sums["correct"][favourable]), float(sums["labels"][favourable]))


@metric("false_positive_rate")
def _false_positive_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records of the other classes for which the favourable class is predicted."""
    if favourable is None:
        return math.nan
    predicted, labelled, both = (float(sums[name][favourable]) for name in ("predicted", "labels", "correct"))
    return _rate(predicted - both, _records(sums, favourable) - labelled)


@metric("majority_rate")
def _majority_rate(sums: Sums, favourable: int | None) -> float:
    """Return the share of records with the most frequent label: the accuracy of always predicting it."""
    return _rate(float(sums["labels"].max()), _records(sums, favourable))


@metric("balanced_accuracy")
def _balanced_accuracy(sums: Sums, favourable: int | None) -> float:
    """Return the mean over the classes of the share of their records that are recognised; NaN if a class has none."""
    return float((sums["correct"] / sums["labels"]).mean())


def _rate(part: float, whole: float) -> float:
    """Return `part / whole`, NaN if `whole` is 0."""
    return part / whole if whole else math.nan


METRICS.update(OF_PROBABILITIES)
