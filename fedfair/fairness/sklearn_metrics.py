"""Any metric of scikit-learn by its name, computed from sums that add up over nodes.

Records that agree in label and prediction, or in label and score, are one record with a weight. Metrics of decisions
are exact. Metrics of scores see 1024 different scores (see `fedfair.fairness.group_counts`).

A metric that needs a class which no record has is unknown. Recall needs records of the favourable class, and a
correlation needs both classes, among labels and among decisions; accuracy needs none. Which classes a metric needs is
found by trying: a trace of the absent classes, decided rightly or wrongly, must leave its value where it is.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.group_counts import MOST_CLASSES, Sums, middles
from fedfair.fairness.metrics import Compute, computed
from fedfair.plugins.registry import unknown

PREFIX = "sklearn:"
"""May precede a name; in results it does where fedfair has a metric of that name."""


@dataclass(frozen=True)
class Wanted:
    """A metric of scikit-learn.

    Attributes:
        name: Its name in results.
        compute: From labels, and decisions or scores, with weights, to a number.
        of_scores: Whether it takes scores.
    """

    name: str
    compute: Callable[..., float]
    of_scores: bool

    def __call__(self, sums: Sums, favourable: int | None) -> float:
        """Return the metric of the records that some sums are over; NaN if it needs a class that they lack."""
        seen = _by_score(sums) if self.of_scores else _by_decision(sums, favourable)
        if not len(seen.y):
            return math.nan
        value = self.of(seen)
        traces = _traces_of_scores(seen) if self.of_scores else _traces_of_decisions(seen)
        changes = [abs(self.of(seen.with_trace(trace)) - value) for trace in traces]
        return value if not changes or (max(changes) < _JUMP and min(changes) < _UNCHANGED) else math.nan

    def of(self, seen: Seen) -> float:
        """Return what scikit-learn computes; NaN if it refuses."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return float(self.compute(seen.y.numpy(), seen.given.numpy(), sample_weight=seen.weights.numpy()))
            except (ValueError, ArithmeticError):
                return math.nan


class Seen(NamedTuple):
    """Different records with their weights.

    Attributes:
        y: Labels, `[n]`.
        given: Decisions or scores, `[n]`.
        weights: Numbers of records, `[n]`.
        classes: Number of classes.
    """

    y: Tensor
    given: Tensor
    weights: Tensor
    classes: int

    def with_trace(self, trace: Sequence[tuple[int, float]]) -> Seen:
        """Return these records and a trace of others, given as labels with decisions or scores."""
        y, given = ([pair[at] for pair in trace] for at in (0, 1))
        weights = self.weights.new_full((len(trace),), _TRACE * float(self.weights.sum()))
        return Seen(torch.cat([self.y, self.y.new_tensor(y)]), torch.cat([self.given, self.given.new_tensor(given)]),
                    torch.cat([self.weights, weights]), self.classes)


_TRACE, _JUMP, _UNCHANGED = 1e-12, 1e-3, 1e-7
"""Weight of a trace, as a share of all records, and by how much any and the smaller change of a metric is not less.

A metric that does not need the absent classes changes by about the weight, and the root of a mean error by the root of
the weight, if the trace is wrong. A correlation changes by the root whether it is right or wrong.
"""


def _traces_of_decisions(seen: Seen) -> list[list[tuple[int, float]]]:
    """Return the classes that no record has, or that none is decided for: as decided rightly, and wrongly."""
    classes = range(seen.classes)
    unlabelled, undecided = ([each for each in classes if each not in values]
                             for values in (set(seen.y.tolist()), set(seen.given.tolist())))
    if not unlabelled and not undecided:
        return []
    other = [(each + 1) % seen.classes for each in classes]
    right = [(each, each) for each in dict.fromkeys([*unlabelled, *undecided])]
    wrong = [*((each, other[each]) for each in unlabelled), *((other[each], each) for each in undecided)]
    return [[*right], [*wrong]]


def _traces_of_scores(seen: Seen) -> list[list[tuple[int, float]]]:
    """Return the label that no record has, with the least score, and with the largest."""
    absent = {0, 1} - set(seen.y.tolist())
    return [[(label, score)] for label in absent for score in (0.0, 1.0)]


@lru_cache(maxsize=256)
def find_metric(name: str) -> Wanted:
    """Return a metric by the name of its scorer ("f1_macro") or of its function ("matthews_corrcoef").

    Raises `ValueError` if scikit-learn has none of labels, decisions or scores, and weights, by that name.
    """
    import sklearn.metrics  # 0.3 s, which only runs that ask for it take

    plain = name.removeprefix(PREFIX)
    if plain in sklearn.metrics.get_scorer_names():
        scorer = sklearn.metrics.get_scorer(plain)
        function, sign, fixed = scorer._score_func, scorer._sign, scorer._kwargs
    elif plain in sklearn.metrics.__all__:
        function, sign, fixed = getattr(sklearn.metrics, plain), 1, {}
    else:
        known = {*sklearn.metrics.get_scorer_names(), *sklearn.metrics.__all__}
        raise unknown("metric of scikit-learn", plain, {each for each in known if each.islower()})
    takes = list(inspect.signature(function).parameters) if inspect.isfunction(function) else []
    second = takes[1] if len(takes) > 1 else ""
    if "sample_weight" not in takes or second not in (*_SCORES, *_DECISIONS):
        raise ValueError(f"metrics names {plain!r}, which scikit-learn does not compute from labels, decisions or "
                         "scores, and weights: take another, for example matthews_corrcoef, f1_macro or "
                         "average_precision")

    of_scores = second in _SCORES or function in _scored()
    classes = {"labels": [0, 1]} if of_scores and "labels" in takes else {}  # a group's records may lack one of them

    def compute(y: Any, given: Any, **weights: Any) -> float:
        """Return the metric as its scorer would."""
        return float(sign * function(y, given, **fixed, **classes, **weights))

    return Wanted(f"{PREFIX}{plain}" if plain in computed() else plain, compute, of_scores)


_SCORES, _DECISIONS = ("y_score", "y_prob", "y_proba"), ("y_pred", "y2")
"""What scikit-learn calls a function's second argument."""


@lru_cache(maxsize=1)
def _scored() -> frozenset[Callable[..., Any]]:
    """Return the functions whose scorers do not take decisions, whatever their arguments are called."""
    from sklearn.metrics import get_scorer, get_scorer_names

    scorers = map(get_scorer, get_scorer_names())
    return frozenset(scorer._score_func for scorer in scorers if scorer._response_method != "predict")


def further(names: tuple[str, ...], classes: int, favourable: int | None) -> dict[str, Compute]:
    """Return metrics by name, after trying each on records of all classes.

    Args:
        names: Names, see `find_metric`.
        classes: Number of classes.
        favourable: Favourable class; None for none.

    Raises:
        ValueError: If a metric does not fit the classes; the message says why.
    """
    if names and classes > MOST_CLASSES:
        raise ValueError(f"metrics names {', '.join(names)}, but there are {classes:,} classes, and at most "
                         f"{MOST_CLASSES} can be counted: leave metrics out")
    wanted = {each.name: each for each in map(find_metric, names)}
    every = torch.arange(classes)
    for name, each in wanted.items():
        if each.of_scores and favourable is None and classes > 2:
            raise ValueError(f"metrics names {name}, which is of the scores of one class, but there are {classes} "
                             "classes: say which is favourable (favourable)")
        y = every[:2] if each.of_scores else every
        try:
            each.compute(y.numpy(), (y.double() + 1) / 3 if each.of_scores else y, sample_weight=torch.ones(len(y)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"metrics names {name}, which scikit-learn refuses for {classes} classes: {error}"
                             ) from None
    return dict(wanted)


def _by_decision(sums: Sums, favourable: int | None) -> Seen:
    """Return different pairs of label and decision with their numbers of records; 1 is the favourable one of two."""
    counts = sums["confusion"]
    y, z = counts.nonzero(as_tuple=True)
    weights = counts[y, z]
    if len(counts) == 2 and favourable == 0:
        return Seen(1 - y, 1 - z, weights, 2)
    return Seen(y, z, weights, len(counts))


def _by_score(sums: Sums) -> Seen:
    """Return whether the label is favourable with the score, where they differ, and their numbers of records."""
    counts = sums["scores"].double()
    at, y = counts.nonzero(as_tuple=True)
    return Seen(y, middles()[at], counts[at, y], 2)
