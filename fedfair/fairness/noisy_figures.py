"""Figures by group, and gaps between groups, from counts that carry noise, each with an interval.

The names of the figures are those of `fedfair.fairness.metrics`. Some are only known here:

- `precision`: of records that are decided for the favourable class, the share that has it; `predictive_parity` is the
  gap of it;
- `selection_ratio`: the smallest positive rate over the largest;
- `worst_group_accuracy`;
- `calibration_gap`: the mean stated probability of the favourable class less how often it occurs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.decision_counts import CONFUSION, EDGES, LEVELS, SCORES, ahead, probabilities
from fedfair.fairness.group_counts import favourable_of
from fedfair.fairness.intervals import (
    UNKNOWN,
    Estimate,
    Spread,
    cells_of,
    covariance,
    gaps,
    of_cells,
    places_of,
    quantile,
    rate,
    spread_of,
)
from fedfair.fairness.metrics import ALL

CONFIDENCE = 0.95
CLASSES = 2
AT_CUT_OFFS = ("accuracy", "positive_rate", "true_positive_rate", "false_positive_rate", "demographic_parity",
               "equal_opportunity", "selection_ratio")
"""Figures at other cut-offs."""
_EDGE = 0.02  # nearer to 0 or 1, noise may lead an area beyond, where it has no logit


class Figure(NamedTuple):
    """One figure of a group, or of "all"; the interval holds with `CONFIDENCE`."""

    group: str
    metric: str
    value: float
    low: float
    high: float


class CurvePoint(NamedTuple):
    """One point of a calibration curve: where a group's stated probability is from `start` to `end`.

    `share` is how often the favourable class occurs there, with its interval; `stated` the probability in the middle.
    """

    group: str
    start: float
    end: float
    stated: float
    share: float
    low: float
    high: float


class CutOffFigure(NamedTuple):
    """One figure of a group, or of "all", if the favourable class were decided for from a probability on."""

    cut_off: float
    group: str
    metric: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class NoisyCounts:
    """Counts of decisions with noise (`fedfair.fairness.decision_counts`).

    Attributes:
        tables: Counts by table; they may be negative.
        deviation: Standard deviation of the noise by table.
        favourable: Number of the favourable class; None for none.
        names: Names of the groups.
        decided: The class that every record is decided as, so that other cells are 0 without noise; None for several.
        alike: Number of tables by which the numbers of records with each label were made alike (`made_alike`).
        among: Names of the groups among which gaps are; none for all of which the rates can be told.
    """

    tables: Mapping[str, Tensor]
    deviation: Mapping[str, float]
    favourable: int | None
    names: tuple[str, ...]
    decided: int | None = None
    alike: int = 1
    among: tuple[str, ...] = ()

    def figures(self, confidence: float = CONFIDENCE) -> list[Figure]:
        """Return all figures."""
        return self._named(FIGURES, confidence)

    def _named(self, rates: Collection[str], confidence: float) -> list[Figure]:
        """Return some figures of each group, by their names in `FIGURES`, and the gaps of them."""
        z, groups = quantile(confidence), [Summed(self, [number]) for number in range(len(self.names))]
        together = Summed(self, range(len(self.names)))
        rows = []
        for name, group in ((ALL, together), *zip(self.names, groups, strict=True)):
            rows += [Figure(name, metric, *group.figure(metric, z)) for metric in rates]
        found = gaps([group.figure for group in groups], rates, confidence, places_of(self.among, self.names))
        return [*rows, *(Figure(ALL, name, *gap) for name, gap in found)]

    def curve(self, confidence: float = CONFIDENCE) -> list[CurvePoint]:
        """Return the calibration curve of each group; none without a favourable class."""
        points: list[CurvePoint] = []
        for number, name in enumerate(self.names if SCORES in self.tables else ()):
            points += _curve(name, Summed(self, [number]), quantile(confidence))
        return points

    def cut_offs(self, confidence: float = CONFIDENCE) -> Iterator[CutOffFigure]:
        """Yield the figures at other cut-offs than an even one, of two classes: at the ends between levels of scores.

        A decision at such an end is known from the level, so that its counts are sums of those that were released. The
        noise of a sum of fewer levels is taken for that of most, so that intervals are rather too wide.
        """
        classes = self.tables[CONFUSION].shape[1]
        own = favourable_of(self.favourable, classes)
        if SCORES not in self.tables or own is None or classes != CLASSES:
            return
        scores, rates = self.tables[SCORES], [name for name in FIGURES if name in AT_CUT_OFFS]
        for place, edge in enumerate(EDGES.tolist(), 1):
            if edge == 0:
                continue
            table = torch.zeros(len(scores), CLASSES, CLASSES, dtype=torch.float64)
            for label in range(CLASSES):
                of_label = scores[:, int(label == own)]
                table[:, label, own] = of_label[:, place:].sum(1)
                table[:, label, 1 - own] = of_label[:, :place].sum(1)
            noise = self.deviation[SCORES] * math.sqrt(max(place, LEVELS - place))
            counts = NoisyCounts({CONFUSION: table}, {CONFUSION: noise}, own, self.names, among=self.among)
            for figure in counts._named(rates, confidence):
                if figure.metric in AT_CUT_OFFS:
                    yield CutOffFigure(1 / (1 + math.exp(-edge)), *figure)


def made_alike(tables: Tensor) -> tuple[Tensor, Tensor]:
    """Return counts of several classifiers on the same records with the same numbers of records with each label.

    Those are known best as the mean over the classifiers; each count takes an equal part of what its own sum is off.

    Args:
        tables: Counts of decisions with noise, `[points, K, C, C]`: by group, label and decision.

    Returns:
        The counts, and the numbers of records by group and label, `[K, C]`.
    """
    totals = tables.sum(3)
    labels = totals.mean(0)
    return tables + ((labels - totals) / tables.shape[3])[..., None], labels


def constant_counts(labels: Tensor, deviation: float, favourable: int | None, names: tuple[str, ...], decided: int,
                    among: tuple[str, ...] = ()) -> NoisyCounts:
    """Return the counts of a classifier that decides alike for every record.

    Args:
        labels: Numbers of records by group and label with noise, `[K, C]`.
        deviation: Standard deviation of it.
        favourable: Number of the favourable class; None for none.
        names: Names of the groups.
        decided: The class that it decides for.
        among: Names of the groups among which gaps are.
    """
    table = torch.zeros(*labels.shape, labels.shape[1], dtype=torch.float64)
    table[:, :, decided] = labels
    return NoisyCounts({CONFUSION: table}, {CONFUSION: deviation}, favourable, names, decided, among=among)


class Summed:
    """Counts of some groups together: confusion `[C, C]`, and scores `[2, LEVELS]` or None, with their deviations."""

    def __init__(self, counts: NoisyCounts, numbers: Sequence[int]) -> None:
        summed = {name: table[list(numbers)].sum(0) for name, table in counts.tables.items()}
        noise = {name: math.sqrt(len(numbers)) * each for name, each in counts.deviation.items()}
        self.confusion, self.noise = summed[CONFUSION], noise[CONFUSION]
        self.scores, self.scores_noise = summed.get(SCORES), noise.get(SCORES, 0.0)
        self.favourable = favourable_of(counts.favourable, len(self.confusion))
        self.counted = torch.ones_like(self.confusion, dtype=torch.bool) if counts.decided is None else self.mask(
            decision=counts.decided)
        self.alike = counts.alike
        self._counted_cells = self.counted.numpy().tobytes()
        self._known: dict[tuple[str, float], Estimate] = {}

    def figure(self, metric: str, z: float) -> Estimate:
        """Return a figure, by its name in `FIGURES`, with an interval of so many deviations; each is computed once."""
        if (metric, z) not in self._known:
            self._known[metric, z] = FIGURES[metric](self, z)
        return self._known[metric, z]

    def rate(self, part: Tensor, whole: Tensor, z: float) -> Estimate:
        """Return the share of the cells `part` in the cells `whole`, masks `[C, C]`, the first within the second.

        It is known where only one of the two has cells that can hold a record, whoever the records are.
        """
        spread = spread_of(part.numpy().tobytes(), whole.numpy().tobytes(), self._counted_cells, self.alike)
        if not isinstance(spread, Spread):
            return spread
        return rate(float(self.confusion[part].sum()), float(self.confusion[whole].sum()), spread, self.noise, z)

    def mask(self, label: int | None = None, decision: int | None = None) -> Tensor:
        """Return the cells of a label and a decision; None for any."""
        return cells_of(len(self.confusion), label, decision)


def _records(group: Summed, z: float) -> Estimate:
    """Return the number of records; its interval is for the noise alone."""
    spread = covariance(group.counted, group.counted, group.alike)
    total, error = float(group.confusion.sum()), z * group.noise * math.sqrt(spread)
    return Estimate(max(total, 0.0), max(total - error, 0.0), max(total + error, 0.0))


def _accuracy(group: Summed, z: float) -> Estimate:
    """Return the share of right decisions."""
    return group.rate(torch.eye(len(group.confusion), dtype=torch.bool), group.mask(), z)


def _majority_rate(group: Summed, z: float) -> Estimate:
    """Return the share of the most frequent label."""
    label = int(group.confusion.sum(1).argmax())
    return group.rate(group.mask(label), group.mask(), z)


def _balanced_accuracy(group: Summed, z: float) -> Estimate:
    """Return the mean over the labels of the share of right decisions."""
    classes = len(group.confusion)
    recalls = [group.rate(group.mask(label, label), group.mask(label), z) for label in range(classes)]
    value = sum(each.value for each in recalls) / classes
    below, above = (math.hypot(*(each[end] - each.value for each in recalls)) / classes for end in (1, 2))
    return Estimate(value, value - below, value + above).within(0, 1)


def _share(label: bool | None, decided: bool) -> Callable[[Summed, float], Estimate]:
    """Return a rate of decisions for the favourable class, or with `decided` False of its label among these."""

    def compute(group: Summed, z: float) -> Estimate:
        """Return the rate."""
        named = group.favourable
        if named is None:
            return UNKNOWN
        if not decided:
            return group.rate(group.mask(named, named), group.mask(None, named), z)
        whole = group.mask() if label is None else group.mask(named) if label else ~group.mask(named)
        return group.rate(group.mask(None, named) & whole, whole, z)

    return compute


def _auc(group: Summed, z: float) -> Estimate:
    """Return the area under the ROC curve, with DeLong's variance and that of the noise.

    Of records in the same level the one of the favourable class is a little more often ahead than not (`ahead`).
    """
    if group.scores is None:
        return UNKNOWN
    others, own = group.scores
    n0, n1 = float(others.sum()), float(own.sum())
    if n0 <= 0 or n1 <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    tied = ahead()
    below = (others.cumsum(0) - (1 - tied) * others) / n0  # share of others that a favourable one at this level beats
    above = 1 - (own.cumsum(0) - tied * own) / n1
    area, noise = float((own * below).sum() / n1), group.scores_noise**2
    variance = float(((below - area) ** 2 * (own.clamp(min=0) + noise)).sum() / n1**2
                     + ((above - area) ** 2 * (others.clamp(min=0) + noise)).sum() / n0**2)
    error = z * math.sqrt(variance)
    if not _EDGE < area < 1 - _EDGE:
        return Estimate(area, area - error, area + error).within(0, 1)
    logit, error = math.log(area / (1 - area)), error / (area * (1 - area))
    low, high = (1 / (1 + math.exp(-min(max(logit + sign * error, -700), 700))) for sign in (-1, 1))
    return Estimate(area, low, high)


def _mean(group: Summed, values: Tensor, z: float) -> Estimate:
    """Return the mean over the records of a value for each cell of the scores, `[2, LEVELS]`, by the delta method."""
    assert group.scores is not None
    total = float(group.scores.sum())
    if total <= 0:
        return Estimate(math.nan, -math.inf, math.inf)
    mean = float((group.scores * values).sum()) / total
    variance = (values - mean) ** 2 * (group.scores.clamp(min=0) + group.scores_noise**2)
    error = z * math.sqrt(float(variance.sum())) / total
    return Estimate(mean, mean - error, mean + error)


def _stated_less_label() -> Tensor:
    """Return by cell the stated probability of the favourable class, less 1 where that is the label, `[2, LEVELS]`."""
    stated = probabilities()
    return torch.stack([stated, stated - 1])


def _brier_score(group: Summed, z: float) -> Estimate:
    """Return the mean squared error of the favourable class's probability, which is that of its level."""
    return UNKNOWN if group.scores is None else _mean(group, _stated_less_label() ** 2, z).within(0, 1)


def _calibration_gap(group: Summed, z: float) -> Estimate:
    """Return the mean stated probability less how often the favourable class occurs."""
    return UNKNOWN if group.scores is None else _mean(group, _stated_less_label(), z).within(-1, 1)


def _calibration_error(group: Summed, z: float) -> Estimate:
    """Return the expected calibration error over the levels; its interval allows for what noise adds to it."""
    if group.scores is None:
        return UNKNOWN
    total, off = float(group.scores.sum()), _stated_less_label()
    if total <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    variance = off**2 * (group.scores.clamp(min=0) + group.scores_noise**2)
    apart, spread = (group.scores * off).sum(0), variance.sum(0).sqrt()
    value = float(apart.abs().sum()) / total
    bias, error = float(spread.sum()) * math.sqrt(2 / math.pi) / total, z * float(spread.norm()) / total
    return Estimate(value, value - bias - error, value + error).within(0, 1)


def _curve(name: str, group: Summed, z: float) -> Iterator[CurvePoint]:
    """Yield the points of one group's calibration curve."""
    assert group.scores is not None
    ends = [0.0, *torch.sigmoid(EDGES).tolist(), 1.0]
    others, own = group.scores.tolist()
    stated = probabilities().tolist()
    for at, (rest, part) in enumerate(zip(others, own, strict=True)):
        share = rate(part, part + rest, of_cells(1, 1), group.scores_noise, z)
        yield CurvePoint(name, ends[at], ends[at + 1], stated[at], *share)


FIGURES: dict[str, Callable[[Summed, float], Estimate]] = {
    "records": _records, "accuracy": _accuracy, "majority_rate": _majority_rate,
    "balanced_accuracy": _balanced_accuracy, "positive_rate": _share(None, True),
    "true_positive_rate": _share(True, True), "false_positive_rate": _share(False, True),
    "precision": _share(None, False), "auc": _auc, "brier_score": _brier_score,
    "calibration_gap": _calibration_gap, "calibration_error": _calibration_error}
"""How each figure of a group is computed, by its name in `fedfair.fairness.metrics.METRICS`."""
