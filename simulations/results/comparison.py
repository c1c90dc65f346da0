"""Comparisons: methods that were run on the same records, and how several of them are joined.

What is shown of the runs on one data set, from the runs themselves or from the folder that they were saved in.

The runs of a comparison, in a list that notebooks show as tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.datasets import Parts
from fedfair.fairness.metrics import ALL
from fedfair.protocol.fields import marked
from fedfair.protocol.messages import BY_CLIENT
from fedfair.protocol.task import Task
from simulations.files.atomic_files import in_json
from simulations.results.ledger_table import read_ledgers
from simulations.results.model_metadata import Description, descriptions
from simulations.results.notebook import runs_html
from simulations.results.result import Result, identified
from simulations.settings.experiment import Experiment
from simulations.statistics.measured import Measured
from simulations.statistics.statements import favourable_class, in_words
from simulations.statistics.summary import final_part

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
    `simulations.statistics.statements.attributes_used`; empty if the folder does not say. `nodes` has what each node
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
        """Final metrics of each client, see `statistics.summary.final_part`; empty if none were measured."""
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


@dataclass(frozen=True)
class Outcome:
    """Runs on one data set, as far as they are shown.

    Attributes:
        experiment: One of the runs.
        data: Its records.
        measured: The runs, measured.
        models: What is saved with the models.
    """

    experiment: Experiment
    data: Parts
    measured: Measured
    models: Sequence[Description]

    def findings(self) -> list[str]:
        """Return what is found, in sentences: models that predict one class first, then the favourable class."""
        return [*self.measured.statements(), favourable_class(self.experiment, self.data)]

    def notes(self) -> list[str]:
        """Return what else there is to know: features that are sensitive, and the class that thresholds favour."""
        classes = {model.labels[model.threshold.favourable] for model in self.models if model.threshold}
        return [*in_words(model.attributes_used for model in self.models),
                *(f"Thresholds equalise the rate of {label!r}; set favourable to choose another class."
                  for label in sorted(classes))]  # class 1 of two may not be the one that people want


def outcome_of(results: Sequence[Result]) -> Outcome:
    """Return what is shown of finished runs on one data set.

    Args:
        results: The runs, at least one.
    """
    ledgers = {(r.experiment.dataset, r.experiment.strategy, r.experiment.seed): r.ledger for r in results}
    return Outcome(results[0].experiment, results[0].data,
                   Measured(identified(results), ledgers, results[0].group_sizes),
                   [result.description for result in results])


def read_outcome(folder: Path, planned: Sequence[Experiment]) -> Outcome:
    """Return what is shown of a comparison that was saved.

    Args:
        folder: Its folder.
        planned: Its experiments.

    Raises:
        OSError: If a file is missing.
    """
    saved = read_ledgers(folder)
    ledgers = {(made.dataset, made.strategy, made.seed): saved[f"{made.strategy}/seed-{made.seed}"] for made in planned}
    data = planned[0].task.data()
    return Outcome(planned[0], data, Measured(pd.read_parquet(folder / "metrics.parquet"), ledgers, _sizes(data)),
                   list(descriptions(folder / "model.safetensors").values()))


def as_json(outcome: Outcome, folder: Path | None = None) -> str:
    """Return the terminal's table as JSON: `summary` (a row for each strategy), `findings` (sentences) and `folder`.

    `folder` is where the results are saved, or null. JSON has no infinity: an infinite epsilon is null, with the
    guarantee "none".
    """
    return in_json({"summary": outcome.measured.summary.to_dict("records"), "findings": outcome.findings(),
                    "folder": None if folder is None else str(folder)})


def _sizes(data: Parts) -> dict[str, int]:
    """Return the numbers of training records by group."""
    return dict(zip(data.train.names, data.train.group_sizes(), strict=True))


class Results(list[Result]):
    """A list of finished runs."""

    def _repr_html_(self) -> str:
        """Show tables and findings of each data set, for notebooks."""
        datasets = dict.fromkeys(result.experiment.dataset for result in self)
        parts = [_shown([result for result in self if result.experiment.dataset == name]) for name in datasets]
        return "\n".join(parts) or "<p>no runs</p>"


def _shown(results: list[Result]) -> str:
    """Show the runs on one data set."""
    first, ledgers = results[0], {(r.experiment.dataset, r.experiment.strategy, r.experiment.seed): r.ledger
                                  for r in results}
    return runs_html(Measured(identified(results), ledgers, first.group_sizes),
                     [favourable_class(first.experiment, first.data)])
