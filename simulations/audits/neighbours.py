"""Two data sets that differ in one training record: the user's data, and the same with a stand-in for one record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fedfair.datasets import DATASETS, GroupedDataset
from fedfair.datasets.files.table_file import read_table
from simulations.audits.outlier import changed_source, forget
from simulations.settings.experiment import Experiment


@dataclass(frozen=True)
class Neighbours:
    """The training record `target`, and the record of the same group that stands in for it, by rows of the source.

    Numbers of records by group are public, so both data sets have the same.
    """

    experiment: Experiment
    target: int
    stand_in: int

    @contextmanager
    def world(self, without: bool, folder: Path) -> Iterator[Experiment]:
        """Yield an experiment on either data set, as a context: one with the target, or the other `without` it.

        A table of the user's own is copied into `folder`, under the same name for both.
        """
        made = self.experiment
        if made.csv:
            yield made.model_copy(update={"csv": str(self._table(without, folder))})
            return
        published = DATASETS[made.dataset]
        changed = partial(_exchanged, target=self.target, stand_in=self.stand_in) if without else _as_it_is
        with changed_source(made.dataset, lambda group: changed(published.load(group))):
            yield made

    def _table(self, without: bool, folder: Path) -> Path:
        """Write one of the two tables."""
        made = self.experiment
        table = read_table(Path(str(made.csv)), made.asked).frame
        if without:
            kept = {*made.attributes, made.participant}
            columns = [column for column in table.columns if column not in kept]
            table.loc[self.target, columns] = table.loc[self.stand_in, columns]
        file = folder / f"{Path(str(made.csv)).stem}.csv"
        table.to_csv(file, index=False, sep=made.separator or ",", encoding=made.encoding or "utf-8")
        forget()
        return file


def neighbours(experiment: Experiment, target: int | None = None) -> Neighbours:
    """Choose a target, and who stands in for it: the most usual record of its group, of another class if there is one.

    Args:
        experiment: What is run on the data.
        target: Row of a training record in the source; None for the most unusual training record.

    Raises:
        ValueError: If the target is not in the training part, or is alone in its group, or if rows of the source are
            dropped, so that they cannot be told by their numbers; and what `Task.data` raises.
    """
    if experiment.missing == "drop":
        raise ValueError("missing is 'drop', so that rows of the source are not those of the data: take missing = "
                         "\"refuse\", with a table that misses no value")
    train = experiment.task.data().train
    unusual = _unusual(train)
    at = int(unusual.argmax()) if target is None else _place(train, target)
    others = (train.group == train.group[at]) & (torch.arange(len(train)) != at)
    if not bool(others.any()):
        raise ValueError(f"the record in row {int(train.records[at])} is alone in its group, so none can stand in for "
                         "it: choose another target")
    other_class = others & (train.y != train.y[at])
    rows = torch.nonzero(other_class if bool(other_class.any()) else others).flatten()
    stand_in = rows[unusual[rows].argmin()]
    return Neighbours(experiment, int(train.records[at]), int(train.records[stand_in]))


def _place(train: GroupedDataset, target: int) -> int:
    """Return where the training part has a row of the source; raise `ValueError` if it has it nowhere."""
    places = torch.nonzero(train.records == target).flatten()
    if not len(places):
        raise ValueError(f"row {target} is not in the training part: choose one of its {len(train):,} records, for "
                         f"example {int(train.records[0])}")
    return int(places[0])


def _unusual(train: GroupedDataset) -> torch.Tensor:
    """Return how far each record is from the others, `[n]`: the sum of its squared standardised features."""
    x = train.features().double().flatten(1)
    return ((x - x.mean(0)) / x.std(0).clamp(min=1e-9)).square().sum(1)


def _exchanged(data: GroupedDataset, target: int, stand_in: int) -> GroupedDataset:
    """Return the records with the features, the label and the weight of one in place of another's."""
    rows = torch.arange(len(data))
    rows[target] = stand_in
    weight = data.weight[rows] if len(data.weight) else data.weight
    return replace(data, x=data.x[rows], y=data.y[rows], weight=weight)


def _as_it_is(data: GroupedDataset) -> GroupedDataset:
    """Return the records."""
    return data

