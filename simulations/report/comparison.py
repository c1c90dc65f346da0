"""Comparisons: methods that were run on the same records, and how several of them are joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL
from fedfair.protocol.marks import marked
from fedfair.protocol.messages import BY_CLIENT
from fedfair.protocol.task import Task
from simulations.results.measured import Measured
from simulations.results.summary import final_part

Run = tuple[str, str, int]
"""Data set, method and seed."""
RECORDS = tuple(marked(Task, "records"))
"""The settings that say which records are trained and tested on."""


@dataclass(frozen=True)
class Comparison:
    """Methods that were run on the same records with one choice of the varied settings (`chosen`).

    `data` has only the settings that choose the records. `metrics` is long (dataset, strategy, seed, round, split,
    group, metric, value); `ledgers` are by run. `favourable` says which class is, and `date` when it was saved; both
    are empty if unknown. `attributes` says which sensitive attributes are features, see
    `simulations.results.attribute_use.attributes_used`; empty if the folder does not say. `nodes` has what each node
    of each method contributed; empty where nodes have no files of their own.
    """

    dataset: str
    data: Task
    chosen: Mapping[str, Any]
    metrics: pd.DataFrame
    ledgers: Mapping[Run, Ledger]
    favourable: str = ""
    date: str = ""
    attributes: Mapping[str, bool] = field(default_factory=dict)
    nodes: pd.DataFrame = field(default_factory=pd.DataFrame)

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
        return int(self.measured.summary["seeds"].max())

    @cached_property
    def first_ledgers(self) -> dict[str, Ledger]:
        """Each method's ledger of its first seed."""
        return {method: next(ledger for (_, m, _), ledger in self.ledgers.items() if m == method)
                for method in self.methods}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Training records by group, the smallest group first; 0 where the numbers are not public."""
        rows = self.metrics.query("split == 'train' and metric == 'records' and group != @ALL",
                                  local_dict={"ALL": ALL})
        sizes = rows.groupby("group")["value"].first().astype(int).sort_values()
        unknown = dict.fromkeys(next(iter(self.ledgers.values())).groups, 0)
        return {str(group): int(size) for group, size in sizes.items()} or unknown

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured of the test part; not with `figures = "none"`."""
        return bool(self.metrics.loc[self.metrics["split"] == "test", "value"].notna().any())

    @cached_property
    def measured(self) -> Measured:
        """What is computed of the runs: final metrics, summary, tests, marks."""
        return Measured(self.metrics, self.ledgers, self.sizes)

    @cached_property
    def by_client(self) -> pd.DataFrame:
        """Final metrics of each client, see `simulations.results.summary.final_part`; empty if none were measured."""
        return final_part(self.metrics, f"test {BY_CLIENT}")


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
    reference (see `simulations.results.reference.reference`).
    """
    clash = first.ledgers.keys() & second.ledgers.keys()
    called = {method: f"{method} ({name})" if clash else method for method in second.methods}
    metrics = pd.concat([first.metrics, second.metrics.replace({"strategy": called})], ignore_index=True)
    renamed: Iterator[tuple[Run, Ledger]] = (((dataset, called[method], seed), ledger)
                                             for (dataset, method, seed), ledger in second.ledgers.items())
    nodes = [part for part in (first.nodes, second.nodes.replace({"method": called})) if len(part)]
    return replace(first, metrics=metrics, ledgers={**first.ledgers, **dict(renamed)},
                   nodes=pd.concat(nodes) if nodes else first.nodes)
