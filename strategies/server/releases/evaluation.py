"""Evaluations of a run: when one is due, what it asks of the nodes, and what it keeps of their answers.

The metrics of a run, in long form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TypedDict

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedfair.accounting import Ledger
from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import ALL, Compute, metrics
from fedfair.mechanisms.clipping import ClipRule, parameters
from fedfair.moments.front import Front
from fedfair.moments.leave_one_out import LeftOut
from fedfair.node import exchanges
from fedfair.protocol.messages import BEFORE_THRESHOLD, BY_CLIENT
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task
from strategies.server.budget_shares import SPLITS, Split
from strategies.server.releases.front import MeasuredFront, noisy
from strategies.server.releases.private_figures import PrivateFigures, rows_of
from strategies.server.releases.threshold_search import Threshold, ThresholdSearch
from strategies.server.replies.requests import group_counts, requests
from strategies.server.training import Training

_NO_MORE: Mapping[str, Compute] = {}


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

    def __init__(self, names: Sequence[str], favourable: int | None, further: Mapping[str, Compute] = _NO_MORE) -> None:
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


class Evaluation:
    """Evaluations of the model by group: of held-out parts during a run, and with exact figures of all at its end.

    Without exact figures all that is known of the training part are numbers of records, if they are public.

    The search for a threshold comes before the last evaluation. `threshold` is the rule that the search ended with, or
    None. Metrics are entered into `rows`, and what leaves without protection into `ledger`. With private `figures`
    there is one evaluation alone, by `release`, at the end.
    """

    def __init__(self, task: Task, training: Training, search: ThresholdSearch, ledger: Ledger, rows: Rows,
                 figures: PrivateFigures | None = None) -> None:
        self.figures = figures
        # Of each part's budget, for the run's model:
        self.shares: Mapping[Split, float] = dict.fromkeys(figures.parts if figures else SPLITS, 1.0)
        self.threshold: Threshold | None = None
        self._task, self._training, self._search = task, training, search
        self._ledger, self._rows = ledger, rows
        self._splits: list[str] = []  # what was asked for, in the order of the rows
        self._last = False
        self._clients = 0  # whose metrics were asked for

    def due(self, server_round: int, rounds_per_epoch: float) -> bool:
        """Return whether a period of `eval_every` epochs ends with this round."""
        every = self._training.eval_every * rounds_per_epoch
        return round(server_round / every, 9) // 1 != round((server_round - 1) / every, 9) // 1

    def release(self, server_round: int, arrays: ArrayRecord, grid: Grid, left: LeftOut | None = None) -> None:
        """Release private figures of the weights `arrays`, after the search for a threshold, and enter them.

        Where nothing is held out, `left` says how training records are decided by a model without them.
        """
        assert self.figures is not None
        self._search_threshold(arrays, grid)
        rule = self.threshold.rule if self.threshold else None
        for split, share in self.shares.items():
            if share:
                counts = (self.figures.model(grid, arrays, self._ledger, rule, split, share) if left is None else
                          self.figures.left_out(grid, left, self._ledger, share))
                self._rows.add(server_round, split, rows_of(counts))

    def release_front(self, grid: Grid, made: Front) -> MeasuredFront:
        """Release private figures of a front's classifiers; the run's model then has what they leave of each budget."""
        assert self.figures is not None
        shares = self.figures.shares_of_front
        self.shares = {split: 1 - share for split, share in shares.items()}
        return noisy(made, {split: self.figures.front(grid, made, self._ledger, split, share)
                            for split, share in shares.items()})

    def _search_threshold(self, arrays: ArrayRecord, grid: Grid) -> None:
        """Search for a threshold, if one is wanted."""
        if self._training.threshold != "none":
            self._search.ask(arrays, grid, self._ledger)
            self.threshold = self._search.choose(self._training.theta)

    def ask(self, server_round: int, arrays: ArrayRecord, grid: Grid, last: bool) -> list[Message]:
        """Return requests for the counts by group of the weights `arrays`; the `last` ones follow the search.

        Without figures nothing is asked, and the metrics are unknown.
        """
        self._last = last
        if last:
            self._search_threshold(arrays, grid)
        if self._training.figures == "none":
            self._add_sizes(server_round)
            self._rows.add_unknown(server_round, "test", self._search.population.classes)
            return []
        training = ["train"] if last and self._training.exact_figures else []
        splits = [*training, "valid", "test"]
        for split in splits:
            self._ledger.expose(f"metrics on the {split} part", "counts and losses by group, without noise")
        self._clients = self._told_apart() if last else 0
        if self._clients:
            self._ledger.expose("metrics of each client", "counts and losses on its test records, without noise")
        self._splits = [name for split in splits for name in (
            [split, f"{split} {BEFORE_THRESHOLD}"] if self.threshold else [split])]
        options = {"gradient-norms": last, "threshold": self.threshold.rule.to_json() if self.threshold else "",
                   "favourable": -1 if self._rows.favourable is None else self._rows.favourable,
                   "confusion": bool(self._training.metrics), "by-client": self._clients > 0}
        return requests(exchanges.send_evaluation, grid, self._task, self._search.population, weights=arrays,
                        splits=splits, **options)

    def keep(self, server_round: int, answered: list[Message]) -> MetricRecord:
        """Enter the metrics of every part and group into `rows`; return the test accuracies for Flower's log."""
        record, population, confusion = MetricRecord(), self._search.population, bool(self._training.metrics)
        if not self._training.exact_figures:
            self._add_sizes(server_round)
        for split in self._splits:
            counts = group_counts(answered, split, len(population.names), population.classes, confusion)
            accuracies = self._rows.add_counts(server_round, split, counts)
            if split == "test":
                record.update({f"accuracy of {group}": value for group, value in accuracies.items()})
        if self._clients:
            split = f"test {BY_CLIENT}"
            counts = group_counts(answered, split, self._clients, population.classes, confusion)
            self._rows.add_counts(server_round, split, counts, self._names())
        return record

    def _add_sizes(self, server_round: int) -> None:
        """Enter the numbers of training records at the end of a run, where they are public."""
        if not self._last or self._ledger.protects != "record":
            return
        population = self._search.population
        sizes = dict(zip(population.names, map(float, population.by_group), strict=True))
        self._rows.add(server_round, "train", [
            (group, "records", size) for group, size in {ALL: float(population.records), **sizes}.items()])

    def _names(self) -> list[str]:
        """Return the names of the clients in the metrics."""
        holders = sorted(self._search.population.holders.values(), key=lambda clients: clients.start)
        if self._task.partition == NODES and len(holders) < self._clients:
            return [f"node {node} site {place}" for node, clients in enumerate(holders)
                    for place in range(len(clients))]
        kind = {"site": "site", NODES: "node"}.get(self._task.partition, "participant")
        return [f"{kind} {number}" for number in range(self._clients)]

    def _told_apart(self) -> int:
        """Return the number of clients if metrics are computed for each; else 0, as where a client is a group."""
        clients = len(self._search.population.sizes)
        partition = self._task.partition
        apart = partition in ("site", NODES) or (partition == "natural" and self._training.exact_figures)
        return clients if apart and clients <= exchanges.MOST_CLIENTS else 0
