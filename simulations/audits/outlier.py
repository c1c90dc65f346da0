"""The audit of the preparation: one extreme row, and what that does to the features of all other records.

Clipping bounds what a record adds to a sum. It bounds nothing if the record also moves the features of the others,
before any gradient is taken: by means and deviations that scale them, or by a category that becomes a column.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedfair.datasets import Parts
from simulations.audits.extreme_rows import BuiltIn, OwnTable, Source
from simulations.settings.experiment import Experiment


@dataclass(frozen=True)
class Moved:
    """What an extreme value in one column did: how many features of how many other records changed, and by how much.

    `features` is the number of columns of features that appeared or disappeared.
    """

    column: str
    value: str
    records: int
    features: int
    largest: float


@dataclass(frozen=True)
class OutlierAudit:
    """What one extreme training record does to the features of others, column by column.

    `learned` is what the ledger will say of the preparation: why it is nominal, or None.
    """

    experiment: Experiment
    columns: tuple[str, ...]
    learned: str | None
    moved: tuple[Moved, ...]

    @property
    def refuted(self) -> bool:
        """Whether one record moves others though the ledger will not say that the preparation learns from records."""
        return bool(self.moved) and self.learned is None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the verdict, ready for JSON."""
        return {"attack": "outlier", "experiment": self.experiment.settings(), "columns": list(self.columns),
                "learned": self.learned, "refuted": self.refuted, "moved": [asdict(each) for each in self.moved]}


def audit_outlier(experiment: Experiment) -> OutlierAudit:
    """Prepare the experiment's data as they are, and with an extreme value in one training record, column by column.

    Numbers become a thousand times the largest of their column, other values a word that occurs nowhere else. Of
    records that are no rows of a table all inputs become extreme. Nothing is trained. Raises `ValueError` for data in
    Hugging Face's format, or for private preprocessing, and what `Task.data` does.
    """
    task = experiment.task
    if task.is_own and task.csv is None:
        raise ValueError(f"an extreme row is put into a CSV file or a built-in data set, but the data are "
                         f"{task.dataset!r}: give csv, or a built-in dataset")
    if task.prepares == "private":
        raise ValueError("preprocessing is private: its release is noisy, and moves all records whether or not one is "
                         "extreme; the ledger charges for it, and the attack folder reads what is published")
    with TemporaryDirectory() as folder:
        source: Source = OwnTable(task, Path(folder)) if task.csv else BuiltIn(task)
        before, columns = source.prepared(), source.columns()
        row = int(before.train.records[0])
        moved = [_compared(before, after, column, row, value)
                 for column in columns for after, value in [source.changed(column, row)]]
    return OutlierAudit(experiment, columns, task.learned_from_records(), tuple(filter(None, moved)))


def _compared(before: Parts, after: Parts, column: str, row: int, value: str) -> Moved | None:
    """Return what changed for other records than the one in `row`; None if nothing did."""
    features = abs(after.train.x[0].numel() - before.train.x[0].numel())
    if features:
        return Moved(column, value, len(before.train) - 1, features, float("inf"))
    records, largest = 0, 0.0
    for (_, old), (_, new) in zip(before, after, strict=True):
        change = (new.x.double() - old.x.double()).abs().flatten(1)
        change = change[old.records != row].nan_to_num(nan=torch.inf)
        if change.numel():
            records += int((change.amax(1) > 0).sum())
            largest = max(largest, float(change.max()))
    return Moved(column, value, records, 0, largest) if records else None
