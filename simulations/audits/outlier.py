"""The audit of the preparation: one extreme row, and what that does to the features of all other records.

Clipping bounds what a record adds to a sum. It bounds nothing if the record also moves the features of the others,
before any gradient is taken: by means and deviations that scale them, or by a category that becomes a column.

The row is one of a table of the user's own, or of a built-in data set, which has other records in place of its own as
long as an audit asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pandas as pd
import torch

from fedfair import client_app
from fedfair.datasets import DATASETS, GroupedDataset, Parts
from fedfair.datasets.features.encoding import Feature
from fedfair.protocol import task_data
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment

_FACTOR = 1e3  # of the largest number of a column: what stands in the extreme row
_WORD = "a word that occurs nowhere else"

INPUTS = "all inputs"
"""What is changed of records that are no rows of a table, like images."""


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


@contextmanager
def changed_source(name: str, load: Callable[[str | None], GroupedDataset]) -> Iterator[None]:
    """Let a built-in data set be loaded by another function, as a context."""
    published = DATASETS[name]
    DATASETS.register(name)(replace(published, load=load))
    forget()
    try:
        yield
    finally:
        DATASETS.register(name)(published)
        forget()


def forget() -> None:
    """Let the next run load its data anew."""
    task_data.forget()
    client_app._LATEST.clear()


class Source(Protocol):
    """Data in which single cells can be made extreme."""

    def columns(self) -> tuple[str, ...]:
        """Return the columns that become features and define no group, class or participant."""

    def prepared(self) -> Parts:
        """Return the parts that the task makes of the data as they are."""

    def changed(self, column: str, row: int) -> tuple[Parts, str]:
        """Return the parts with an extreme value in one cell, and the value."""


class OwnTable:
    """The user's CSV file: changed tables are written into a folder, and read from there."""

    def __init__(self, task: Task, folder: Path) -> None:
        frame = pd.read_csv(str(task.csv), dtype=str)
        self.task, self.folder = task, folder
        self.frame = frame.dropna() if task.missing == "drop" else frame

    def columns(self) -> tuple[str, ...]:
        """See `Source`."""
        return tuple(str(column) for column in self.frame.columns if column not in _taken(self.task))

    def prepared(self) -> Parts:
        """See `Source`."""
        return self._of(self.frame, "before")

    def changed(self, column: str, row: int) -> tuple[Parts, str]:
        """See `Source`."""
        numbers = pd.to_numeric(self.frame[column], errors="coerce")
        numeric = bool(numbers.notna().all())
        value = f"{_FACTOR * (numbers.abs().max() + 1):.0f}" if numeric else _WORD
        frame = self.frame.copy()
        frame.loc[frame.index[row], column] = value
        return self._of(frame, str(self.columns().index(column))), value

    def _of(self, frame: pd.DataFrame, name: str) -> Parts:
        """Return the parts that the task makes of a table."""
        file = self.folder / f"{name}.csv"
        frame.to_csv(file, index=False)
        return self.task.model_copy(update={"csv": str(file)}).data()


class BuiltIn:
    """A built-in data set: it is loaded once, and changed before it is prepared."""

    def __init__(self, task: Task) -> None:
        self.task, self.load = task, lru_cache(DATASETS[task.dataset].load)

    def columns(self) -> tuple[str, ...]:
        """See `Source`."""
        found = dict.fromkeys(self.load(self.task.attributes[0]).columns) or {INPUTS: None}
        return tuple(column for column in found if column not in _taken(self.task))

    def prepared(self) -> Parts:
        """See `Source`."""
        with changed_source(self.task.dataset, self.load):
            return self.task.data()

    def changed(self, column: str, row: int) -> tuple[Parts, str]:
        """See `Source`."""
        value = _extreme(self.load(self.task.attributes[0]), column)

        def load(group: str | None) -> GroupedDataset:
            """Load the records with the extreme value."""
            data = self.load(group)
            return _with_word(data, column, row) if isinstance(value, str) else _with_number(data, column, row, value)

        with changed_source(self.task.dataset, load):
            return self.task.data(), str(value)


def _taken(task: Task) -> set[str | None]:
    """Return the columns that are no features, or define groups."""
    return {task.label, task.participant, *task.attributes, *task.attribute_columns, *(task.without or ())}


def _extreme(data: GroupedDataset, column: str) -> float | str:
    """Return the extreme value of a column: a number, or a category that does not occur."""
    if column == INPUTS:
        return float(data.x.max() if not data.x.is_floating_point() else _FACTOR * (data.x.abs().max() + 1))
    place = data.columns.index(column)
    return float(_FACTOR * (data.x[:, place].abs().max() + 1)) if data.categories[place] is None else _WORD


def _with_number(data: GroupedDataset, column: str, row: int, value: float) -> GroupedDataset:
    """Return the records with another number in one cell, or in all inputs of a row."""
    x = data.x.clone()
    if column == INPUTS:
        x[row] = value
    else:
        x[row, data.columns.index(column)] = value
    return replace(data, x=x)


def _with_word(data: GroupedDataset, column: str, row: int) -> GroupedDataset:
    """Return the records with a category in one row that no other has: a feature of its own, the column's last."""
    places = [place for place, name in enumerate(data.columns) if name == column]
    x, end = data.x.clone(), places[-1] + 1
    x[row, places] = 0
    new = torch.zeros(len(data), 1, dtype=x.dtype)
    new[row] = 1
    features = data.encoding.features
    encoding = data.encoding._replace(features=(*features[:end], Feature(column, _WORD), *features[end:]))
    return replace(data, x=torch.cat([x[:, :end], new, x[:, end:]], 1), encoding=encoding)
