"""The audit of the preparation: one extreme row in a file, and what that does to the features of all other records.

Clipping bounds what a record adds to a sum. It bounds nothing if the record also moves the features of the others,
before any gradient is taken: by means and deviations that scale them, or by a category that becomes a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch

from fedfair.datasets import Parts
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment

_FACTOR = 1e3  # of the largest number of a column: what stands in the extreme row


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
    """Prepare the experiment's file as it is, and with an extreme value in one training record, column by column.

    Numbers become a thousand times the largest of their column, other values a word that occurs nowhere else. Nothing
    is trained. Raises `ValueError` unless the data are a CSV file, or for private
    preprocessing, and what `Task.data` does.
    """
    task = experiment.task
    if task.csv is None:
        raise ValueError(f"an extreme row is put into a CSV file, but the data are {task.dataset!r}: give csv")
    if task.prepares == "private":
        raise ValueError("preprocessing is private: its release is noisy, and moves all records whether or not one is "
                         "extreme; the ledger charges for it, and simulations.audits.folder attacks what is published")
    frame = pd.read_csv(task.csv, dtype=str)
    frame = frame.dropna() if task.missing == "drop" else frame
    with TemporaryDirectory() as folder:
        before = _prepared(task, frame, Path(folder) / "before.csv")
        row = int(before.train.records[0])
        columns = tuple(_features(task, frame))
        moved = [_compared(before, _prepared(task, changed, Path(folder) / f"{number}.csv"), column, row, value)
                 for number, column in enumerate(columns) for changed, value in [_extreme(frame, column, row)]]
    return OutlierAudit(experiment, columns, task.learned_from_records(), tuple(filter(None, moved)))


def _features(task: Task, frame: pd.DataFrame) -> Iterator[str]:
    """Yield the columns of the file that become features and define no group, class or participant."""
    taken = {task.label, task.participant, *task.attributes, *(task.without or ())}
    yield from (str(column) for column in frame.columns if column not in taken)


def _extreme(frame: pd.DataFrame, column: str, row: int) -> tuple[pd.DataFrame, str]:
    """Return the table with an extreme value in one cell, and the value."""
    numbers = pd.to_numeric(frame[column], errors="coerce")
    numeric = bool(numbers.notna().all())
    value = f"{_FACTOR * (numbers.abs().max() + 1):.0f}" if numeric else "a word that occurs nowhere else"
    changed = frame.copy()
    changed.loc[changed.index[row], column] = value
    return changed, value


def _prepared(task: Task, frame: pd.DataFrame, file: Path) -> Parts:
    """Return the parts that the task makes of a table."""
    frame.to_csv(file, index=False)
    return task.model_copy(update={"csv": str(file)}).data()


def _compared(before: Parts, after: Parts, column: str, row: int, value: str) -> Moved | None:
    """Return what changed for other records than the one in `row`; None if nothing did."""
    features = abs(after.train.x.shape[1] - before.train.x.shape[1])
    if features:
        return Moved(column, value, len(before.train) - 1, features, float("inf"))
    records, largest = 0, 0.0
    for (_, old), (_, new) in zip(before, after, strict=True):
        change = (new.x - old.x).abs().double()
        change = change[old.records != row].nan_to_num(nan=torch.inf)
        if change.numel():
            records += int((change.amax(1) > 0).sum())
            largest = max(largest, float(change.max()))
    return Moved(column, value, records, 0, largest) if records else None
