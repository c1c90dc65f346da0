"""Comparisons: methods that were run on the same records, what is computed of them, and how several are joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL, Metric
from fedfair.protocol.fields import marked
from fedfair.protocol.messages import BY_CLIENT
from fedfair.protocol.task import Task
from simulations.files.atomic_files import in_json
from simulations.results.model_metadata import Description
from simulations.statistics.measures import Marks, marks, measures
from simulations.statistics.over_seeds import comparisons
from simulations.statistics.statements import in_words, statements
from simulations.statistics.summary import MEASURED_ON, final_part, final_test, metrics_in, summarise

Run = tuple[str, str, int]
"""Data set, method and seed; see `simulations.settings.experiment.RunKey`."""
RECORDS = tuple(marked(Task, "records"))
"""The settings that say which records are trained and tested on."""


@dataclass(frozen=True)
class Comparison:
    """Methods that were run on the same records with one choice of the varied settings; each table is computed once.

    Attributes:
        dataset: Data set.
        data: Settings that choose the records.
        metrics: Long table: dataset, strategy, seed, round, split, group, metric, value.
        ledgers: Ledgers by run.
        models: Descriptions of the models; empty if none were saved.
        chosen: The choice of the varied settings.
        favourable: Says which class is; empty if unknown.
        date: When it was saved; empty if it was not.
        nodes: What each node of each method contributed; empty where nodes have no files of their own.
        records: Training records by group; None to read them off the metrics.
    """

    dataset: str
    data: Task
    metrics: pd.DataFrame
    ledgers: Mapping[Run, Ledger]
    models: Sequence[Description] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    favourable: str = ""
    date: str = ""
    nodes: pd.DataFrame = field(default_factory=pd.DataFrame)
    records: Mapping[str, int] | None = None

    @property
    def title(self) -> str:
        """Title that distinguishes it from the others."""
        settings = ", ".join(f"{name} = {value}" for name, value in self.chosen.items())
        return f"{self.dataset}, {settings}" if settings else self.dataset

    @property
    def methods(self) -> list[str]:
        """Methods, in the order in which they were named."""
        return list(dict.fromkeys(method for _, method, _ in self.ledgers))

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a method."""
        return int(self.summary["seeds"].max())

    @property
    def attributes(self) -> Mapping[str, bool]:
        """Which sensitive attributes are features of the first model; empty if that is not known."""
        return self.models[0].attributes_used if self.models else {}

    @cached_property
    def first_ledgers(self) -> dict[str, Ledger]:
        """Each method's ledger of its first seed."""
        return {method: next(ledger for (_, m, _), ledger in self.ledgers.items() if m == method)
                for method in self.methods}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Training records by group, as they were given, or the smallest group first; 0 for numbers not public."""
        if self.records is not None:
            return dict(self.records)
        rows = self.metrics.query("split == 'train' and metric == 'records' and group != @ALL",
                                  local_dict={"ALL": ALL})
        sizes = rows.groupby("group")["value"].first().astype(int).sort_values()
        unknown = dict.fromkeys(next(iter(self.ledgers.values())).groups, 0)
        return {str(group): int(size) for group, size in sizes.items()} or unknown

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured of the test part, or of left-out records; not with `figures = "none"`."""
        return bool(self.metrics.loc[self.metrics["split"].isin(MEASURED_ON), "value"].notna().any())

    @cached_property
    def final(self) -> pd.DataFrame:
        """Metrics after the last round, see `simulations.statistics.summary.final_test`."""
        return final_test(self.metrics)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row for each method, see `simulations.statistics.summary.summarise`."""
        return summarise(self.metrics, self.ledgers)

    @cached_property
    def in_table(self) -> list[Metric]:
        """The metrics of its first table, accuracy first."""
        return metrics_in("table", self.final)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """Paired tests between the methods."""
        return comparisons(measures(self.final))

    @cached_property
    def marks(self) -> Marks:
        """The best and the doubtful."""
        return marks(self.final, self.tests)

    @cached_property
    def by_client(self) -> pd.DataFrame:
        """Final metrics of each client, see `statistics.summary.final_part`; empty if none were measured."""
        return final_part(self.metrics, f"test {BY_CLIENT}")

    def findings(self) -> list[str]:
        """Return what is found, in sentences: models that predict one class first, then the favourable class."""
        found = statements(self.final, self.tests, self.summary, self.sizes, self.ledgers.values())
        return [*found, *filter(None, [self.favourable])]

    def notes(self) -> list[str]:
        """Return what else there is to know: features that are sensitive, and the class that thresholds favour."""
        classes = {model.labels[model.threshold.favourable] for model in self.models if model.threshold}
        return [*in_words(model.attributes_used for model in self.models),
                *(f"Thresholds equalise the rate of {label!r}; set favourable to choose another class."
                  for label in sorted(classes))]  # class 1 of two may not be the one that people want

    def to_json(self, folder: Path | None = None) -> str:
        """Return the terminal's table as JSON: `summary` (a row for each strategy), `findings` and `folder`.

        `folder` is where the results are saved, or null. JSON has no infinity: an infinite epsilon is null, with the
        guarantee "none".
        """
        return in_json({"summary": self.summary.to_dict("records"), "findings": self.findings(),
                        "folder": None if folder is None else str(folder)})


def together(named: Sequence[tuple[str, Comparison]]) -> list[Comparison]:
    """Join comparisons on the same records and choice of settings; each comes with its folder's name."""
    joined: dict[tuple[Task, str], Comparison] = {}
    for name, part in named:
        key = (part.data, repr(part.chosen))
        joined[key] = _joined(joined[key], part, name) if key in joined else part
    return [_told_apart(part, list(joined.values())) for part in joined.values()]


def _told_apart(part: Comparison, others: Sequence[Comparison]) -> Comparison:
    """Add to a comparison's choice the settings by which its records differ from those of others on its data set."""
    same = [other.data for other in others if other.dataset == part.dataset]
    differing = {name: getattr(part.data, name) for name in RECORDS if len({getattr(data, name) for data in same}) > 1}
    return replace(part, chosen={**differing, **part.chosen})


def _joined(first: Comparison, second: Comparison, name: str) -> Comparison:
    """Join two comparisons' runs.

    If the first has some runs of the second, the second's methods become "method (name)", so that each stays with its
    reference (see `simulations.statistics.summary.reference`).
    """
    clash = first.ledgers.keys() & second.ledgers.keys()
    called = {method: f"{method} ({name})" if clash else method for method in second.methods}
    metrics = pd.concat([first.metrics, second.metrics.replace({"strategy": called})], ignore_index=True)
    renamed: Iterator[tuple[Run, Ledger]] = (((dataset, called[method], seed), ledger)
                                             for (dataset, method, seed), ledger in second.ledgers.items())
    nodes = [part for part in (first.nodes, second.nodes.replace({"method": called})) if len(part)]
    return replace(first, metrics=metrics, ledgers={**first.ledgers, **dict(renamed)},
                   nodes=pd.concat(nodes) if nodes else first.nodes)
