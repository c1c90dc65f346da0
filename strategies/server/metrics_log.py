"""The metrics of a run, in long form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TypedDict

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import ALL, Metric, metrics
from fedfair.mechanisms.clipping import ClipRule, parameters

_NO_MORE: Mapping[str, Metric] = {}


class Row(TypedDict):
    """One value of a part of the records, or of the clip rule (split "rule"); `group` may be "all"."""

    round: int
    split: str
    group: str
    metric: str
    value: float


class Rows:
    """All rows of a run, `all`, over groups of these `names`; `favourable` is the class of a good decision.

    `further` are metrics that were asked for besides the usual ones.
    """

    def __init__(self, names: Sequence[str], favourable: int | None, further: Mapping[str, Metric] = _NO_MORE) -> None:
        self.all: list[Row] = []
        self.told: dict[str, tuple[float, ...]] = {}  # the latest numbers of the clip rule
        self.favourable, self._names, self._further = favourable, tuple(names), further

    def add(self, round_: int, split: str, measured: Iterable[tuple[str, str, float]]) -> None:
        """Add values with their group and metric."""
        self.all += [Row(round=round_, split=split, group=group, metric=metric, value=value)
                     for group, metric, value in measured]

    def latest(self, round_: int) -> list[Row]:
        """Return the rows of a round, if no later round has any."""
        return list(takewhile(lambda row: row["round"] == round_, reversed(self.all)))[::-1]

    def add_rule(self, round_: int, rule: ClipRule) -> None:
        """Add the numbers of a round's clip rule, where they differ from the last."""
        for name, values in parameters(rule).items():
            if self.told.get(name) != values:
                self.told[name] = values
                groups = self._names if len(values) > 1 else (ALL,)
                self.add(round_, "rule", ((group, name, value) for group, value in zip(groups, values, strict=True)))

    def add_unknown(self, round_: int, split: str, classes: int) -> None:
        """Add the metrics of a part that was not measured, all of them unknown but numbers of records, left out."""
        nothing = metrics(GroupCounts.zeros(len(self._names), classes), self._names, self.favourable)
        self.add(round_, split, ((group, name, math.nan) for group, name, _ in nothing if name != "records"))

    def add_counts(self, round_: int, split: str, counts: GroupCounts, names: Sequence[str] = ()) -> dict[str, float]:
        """Add the metrics of a part, unless it is empty, and return its accuracies by group.

        `names` are those of what is counted, by default the groups.
        """
        measured = [] if not counts.labels.any() else list(
            metrics(counts, tuple(names) or self._names, self.favourable, self._further))
        self.add(round_, split, measured)
        return {group: value for group, metric, value in measured if metric == "accuracy"}
