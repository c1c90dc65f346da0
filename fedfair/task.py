"""What every client must know of a run: which data, how it is split and held, and which model is trained."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from fedfair import models
from fedfair.datasets import DATASETS, GroupedDataset, Parts
from fedfair.datasets.prepare import keep, reduce_group, split, standardise
from fedfair.datasets.table import from_csv
from fedfair.partition import by_group, by_site
from fedfair.registry import unknown

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Width = Annotated[int, Field(ge=1)]


class Task(BaseModel):
    """Data, partition and model of a run; frozen, and validated when it is made.

    `csv` (with `label` and `group`) replaces `dataset` by a file of the user's own. `split` holds the shares of the
    training, validation and test parts. `balance` names a published variant of the data set; `imbalance` thins out one
    group of the training part ("8:40", "8:9%"). `clients` defaults to one for each group. Clients tell the numbers of
    their training records rounded up to multiples of `round_sizes`, and everything is planned with those.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = "digits"
    csv: str | None = None
    label: str | None = None
    group: str | None = None
    split: tuple[Share, Share, Share] = (0.7, 0.1, 0.2)
    balance: str | None = None
    imbalance: str | None = None
    partition: Literal["group", "site"] = "group"
    clients: Annotated[int, Field(ge=1)] | None = None
    round_sizes: Annotated[int, Field(ge=1)] = 1
    model: str = "mlp"
    hidden: tuple[Width, ...] = ()
    seed: Annotated[int, Field(ge=0)] = 0
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _csv_is_a_dataset(cls, values: Any) -> Any:
        """A file of the user's own is called by its stem."""
        if isinstance(values, dict) and values.get("csv") and values.get("dataset", "digits") == "digits":
            return {**values, "dataset": Path(values["csv"]).stem}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Task:
        """Names that exist, shares that add up, and a label and group for a CSV file."""
        if self.csv and not (self.label and self.group):
            raise ValueError("a CSV file needs the columns that hold label and group: give label and group")
        if not self.csv:
            variants = DATASETS[self.dataset].variants
            if self.balance is not None and self.balance not in variants:
                raise unknown(f"balance of {self.dataset}", self.balance, variants or ("none: leave it out",))
        if abs(sum(self.split) - 1) > 1e-9 or self.split[0] == 0 or self.split[2] == 0:
            raise ValueError(f"split is {list(self.split)}: the shares of train, valid and test must sum to 1, and "
                             "train and test must not be 0")
        models.MODELS[self.model]
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {self.device!r} cannot be used here: take cpu, or cuda on a machine that has it"
                             ) from error
        return self

    def data(self) -> Parts:
        """The prepared parts, in the run's dtype; the same object while neither task nor file changes.

        Raises `ValueError` or `FileNotFoundError` if they cannot be made, or a group has no training record.
        """
        return _data(self, Path(self.csv).stat().st_mtime_ns if self.csv and Path(self.csv).is_file() else 0)

    def clients_data(self) -> list[Parts]:
        """The parts that each client holds; validation and test records are dealt like training records."""
        parts, groups = self.data(), len(self.data().train.names)
        clients = self.clients or groups

        def rows(data: GroupedDataset) -> list[torch.Tensor]:
            if self.partition == "group":
                return by_group(data.group, groups, clients)
            return by_site(len(data), clients, self.seed)

        dealt = [[part.take(held) for held in rows(part)] for _, part in parts]
        return [Parts(*three) for three in zip(*dealt, strict=True)]

    def public_size(self, records: int) -> int:
        """What a client tells of a number of records. Never less, so that no record is sampled at a higher rate than
        it is charged for; nothing only if there is none.
        """
        return -(-records // self.round_sizes) * self.round_sizes

    @property
    def public_sizes(self) -> str:
        """What everybody is assumed to know of the data, in words."""
        exact = "exact" if self.round_sizes == 1 else f"rounded up to multiples of {self.round_sizes}"
        return f"numbers of records by group and client ({exact}), expected batch size"

    def build_model(self) -> nn.Module:
        """The model with its initial parameters."""
        train = self.data().train
        return models.build(self.model, self.hidden, train.x.shape[1:], train.classes, self.seed, self.torch_dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of features and parameters."""
        return torch.float64 if self.dtype == "float64" else torch.float32


@lru_cache(maxsize=4)
def _source(dataset: str, group: str | None) -> GroupedDataset:
    """A named data set as its source gives it."""
    return DATASETS[dataset].load(group)


@lru_cache(maxsize=4)
def _data(task: Task, modified: int) -> Parts:
    """See `Task.data`; `modified` tells one state of a CSV file from another."""
    if task.csv and task.label and task.group:
        data = from_csv(Path(task.csv), task.label, task.group)
    else:
        data = _source(task.dataset, task.group)
        if task.balance:
            data = keep(data, DATASETS[task.dataset].variants[task.balance], task.seed)
    parts = split(data, task.split, task.seed)
    if task.imbalance:
        parts = reduce_group(parts, task.imbalance, task.seed)
    absent = [name for name, size in zip(data.names, parts.train.group_sizes(), strict=True) if size == 0]
    if absent:
        raise ValueError(f"group {', '.join(map(repr, absent))} has no record in the training part: take a larger "
                         "share for it, or leave the group out of the data")
    parts = standardise(parts)
    dtype = task.torch_dtype

    def cast(part: GroupedDataset) -> GroupedDataset:
        x = part.x.to(dtype) if part.x.is_floating_point() else part.x
        return GroupedDataset(x, part.y, part.group, part.names, part.classes, (), part.records)

    return Parts(cast(parts.train), cast(parts.valid), cast(parts.test))
