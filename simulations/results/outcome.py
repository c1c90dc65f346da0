"""What is shown of the runs on one data set, from the runs themselves or from the folder that they were saved in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedfair.datasets import Parts
from simulations.results.atomic_files import in_json
from simulations.results.attribute_use import in_words
from simulations.results.ledger_table import read_ledgers
from simulations.results.measured import Measured
from simulations.results.model_metadata import Description, descriptions
from simulations.results.result import Result, identified
from simulations.results.statements import favourable_class
from simulations.settings.experiment import Experiment


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
