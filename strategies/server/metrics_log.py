"""The metrics of a run, in long form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TypedDict

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import ALL, metrics
from fedfair.mechanisms.clipping import ClipRule, parameters


class Row(TypedDict):
    """One value of a part of the records, or of the clip rule (split "rule"); `group` may be "all"."""

    round: int
    split: str
    group: str
    metric: str
    value: float


class Rows:
    """All rows of a run, `all`, over groups of these `names`; `favourable` is the class of a good decision."""

    def __init__(self, names: Sequence[str], favourable: int | None) -> None:
        self.all: list[Row] = []
        self.told: dict[str, tuple[float, ...]] = {}  # the latest numbers of the clip rule
        self._names, self._favourable = tuple(names), favourable

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

    def add_counts(self, round_: int, split: str, counts: GroupCounts) -> dict[str, float]:
        """Add the metrics of a part, unless it is empty, and return its accuracies by group."""
        measured = list(metrics(counts, self._names, self._favourable)) if counts.labels.any() else []
        self.add(round_, split, measured)
        return {group: value for group, metric, value in measured if metric == "accuracy"}
