"""Evaluations of a run: when one is due, what it asks of the nodes, and what it keeps of their answers."""

from __future__ import annotations

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL
from fedfair.node import exchanges
from fedfair.protocol.messages import BEFORE_THRESHOLD, BY_CLIENT
from fedfair.protocol.task import Task
from strategies.server.metrics_log import Rows
from strategies.server.requests import group_counts, requests
from strategies.server.threshold_search import Threshold, ThresholdSearch
from strategies.server.training import Training


class Evaluation:
    """Evaluations of the model by group: of held-out parts during a run, and with exact figures of all at its end.

    Without exact figures all that is known of the training part are numbers of records, if they are public.

    The search for a threshold comes before the last evaluation. `threshold` is the rule that the search ended with, or
    None. Metrics are entered into `rows`, and what leaves without protection into `ledger`.
    """

    def __init__(self, task: Task, training: Training, search: ThresholdSearch, ledger: Ledger, rows: Rows) -> None:
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

    def ask(self, arrays: ArrayRecord, grid: Grid, last: bool) -> list[Message]:
        """Return requests for the counts by group of the weights `arrays`; the `last` ones follow the search."""
        self._last = last
        training = ["train"] if last and self._training.exact_figures else []
        splits = [*training, "valid", "test"]
        for split in splits:
            self._ledger.expose(f"metrics on the {split} part", "counts and losses by group, without noise")
        if last and self._training.threshold != "none":
            self._search.ask(arrays, grid, self._ledger)
            self.threshold = self._search.choose(self._training.theta)
        self._clients = self._told_apart() if last else 0
        if self._clients:
            self._ledger.expose("metrics of each client", "counts and losses on its test records, without noise")
        self._splits = [name for split in splits for name in (
            [split, f"{split} {BEFORE_THRESHOLD}"] if self.threshold else [split])]
        return requests(exchanges.send_evaluation, grid, self._task, weights=arrays, splits=splits, **{
            "gradient-norms": last, "threshold": self.threshold.rule.to_json() if self.threshold else "",
            "favourable": -1 if self._rows.favourable is None else self._rows.favourable,
            "confusion": bool(self._training.metrics), "by-client": self._clients > 0})

    def keep(self, server_round: int, answered: list[Message]) -> MetricRecord:
        """Enter the metrics of every part and group into `rows`; return the test accuracies for Flower's log."""
        record, population, confusion = MetricRecord(), self._search.population, bool(self._training.metrics)
        if self._last and not self._training.exact_figures and self._ledger.protects == "record":
            sizes = dict(zip(population.names, map(float, population.by_group), strict=True))
            self._rows.add(server_round, "train", [
                (group, "records", size) for group, size in {ALL: float(population.records), **sizes}.items()])
        for split in self._splits:
            counts = group_counts(answered, split, len(population.names), population.classes, confusion)
            accuracies = self._rows.add_counts(server_round, split, counts)
            if split == "test":
                record.update({f"accuracy of {group}": value for group, value in accuracies.items()})
        if self._clients:
            split = f"test {BY_CLIENT}"
            counts = group_counts(answered, split, self._clients, population.classes, confusion)
            kind = "site" if self._task.partition == "site" else "participant"
            self._rows.add_counts(server_round, split, counts, [f"{kind} {n}" for n in range(self._clients)])
        return record

    def _told_apart(self) -> int:
        """Return the number of clients if metrics are computed for each; else 0, as where a client is a group."""
        clients = len(self._search.population.sizes)
        apart = self._task.partition == "site" or (self._task.partition == "natural" and self._training.exact_figures)
        return clients if apart and clients <= exchanges.MOST_CLIENTS else 0
