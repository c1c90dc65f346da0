"""What every client must know of a run: which data, how it is split and held, and which model is trained."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from torch import nn

from fedfair.datasets import DATASETS, GroupedDataset, Parts
from fedfair.datasets.client_shards import Shares
from fedfair.datasets.features import Range, drop_first, leave_out, standardise, to_ranges
from fedfair.datasets.grouped import Pixels, crossed
from fedfair.datasets.partition import by_group, by_mixture, by_site
from fedfair.datasets.prepare import Missing, keep, reduce_group, split
from fedfair.models import published
from fedfair.plugins.registry import unknown
from fedfair.accounting.events import PUBLIC, Unit

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Width = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

HUGGING_FACE = "hf:"
"""What the name of a data set in Hugging Face's format begins with."""


def _listed(ranges: Any) -> Any:
    """Ranges by column, as people write them, one after the other; raises `ValueError` for one that has no two ends."""
    if not isinstance(ranges, dict):
        return ranges
    for column, ends in ranges.items():
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise ValueError(f"the range of {column} is {ends!r}: give two numbers, the smaller first, for example "
                             f"ranges = {{ {column} = [0, 100] }}")
    return [(column, *ends) for column, ends in ranges.items()]


class Task(BaseModel):
    """Data, partition and model of a run; frozen, and validated when it is made.

    `csv` replaces `dataset` by a file of the user's own; a `dataset` "hf:NAME" is one of Hugging Face's hub, or a
    folder in its format. Of either, `label` and `group` name columns; `missing` says what becomes of rows with missing
    values, and `participant` names a column that says whose each record is. `group` is a protected attribute, or
    several with commas between, whose intersections are then the groups. `split` holds the shares of the training,
    validation and test parts; parts that the source published are kept. `balance` names a published variant of the data
    set; `imbalance` thins out one group of the training part ("8:40", "8:9%"). `clients` defaults to one for each
    group; with the partition "natural" there is one for each participant that the data set names. With "site", `alpha`
    is the Dirichlet concentration of the groups over the sites: small for sites with very different mixtures; without
    it they are even.
    Clients tell the numbers of their records rounded up to multiples of `round_sizes`, and everything is planned with
    those.
    Pixels are scaled to [0, 1] and standardised with the mean and the deviation `pixels`, which are public numbers.
    Of a table, the columns `without` are no features, nor are categories of one-hot columns there ("sex=Male"). What
    is in such columns of one's own may be anything: names, dates, nothing at all.
    `ranges` holds for every numeric column the public range that is scaled to [0, 1], and for a one-hot column of codes
    that is to be one number; without it numeric columns are standardised by the training records, which is not private.
    `drop_first` leaves out the first category of every one-hot column.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = "digits"
    csv: str | None = None
    label: str | None = None
    group: str | None = None
    missing: Missing = "refuse"
    participant: str | None = None
    split: tuple[Share, Share, Share] = (0.7, 0.1, 0.2)
    balance: str | None = None
    imbalance: str | None = None
    partition: Literal["group", "site", "natural"] = "group"
    clients: Annotated[int, Field(ge=1)] | None = None
    round_sizes: Annotated[int, Field(ge=1)] = 1
    alpha: Annotated[float, Field(ge=1e-3, le=1e9)] | None = None
    pixels: tuple[Finite, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = (0.0, 1.0)
    without: tuple[str, ...] | None = None
    ranges: Annotated[tuple[Range, ...], BeforeValidator(_listed)] | None = None
    drop_first: bool = False
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
        """Names that exist, shares that add up, and a label and group for data of one's own."""
        own = bool(self.csv) or self.dataset.startswith(HUGGING_FACE)
        if own and not (self.label and self.group):
            raise ValueError(f"{'a CSV file' if self.csv else self.dataset} needs the columns that hold label and "
                             "group: give label and group")
        for field in () if own else ("label", "participant"):
            if getattr(self, field) is not None:
                raise ValueError(f"{field} is {getattr(self, field)!r}, but {self.dataset} has its own: leave it out, "
                                 "or take csv or a data set hf:NAME")
        variants = {} if own else DATASETS[self.dataset].variants
        if self.balance is not None and self.balance not in variants:
            raise unknown(f"balance of {self.dataset}", self.balance, variants or ("none: leave it out",))
        if abs(sum(self.split) - 1) > 1e-9 or self.split[0] == 0 or self.split[2] == 0:
            raise ValueError(f"split is {list(self.split)}: the shares of train, valid and test must sum to 1, and "
                             "train and test must not be 0")
        if self.alpha is not None and self.partition != "site":
            raise ValueError(f"alpha is {self.alpha}, but partition is {self.partition!r}: alpha says how sites mix "
                             'the groups, so take partition = "site", or leave alpha out')
        published.find_model(self.model)
        if self.partition == "natural" and self.clients is not None:
            raise ValueError(f"clients is {self.clients}, but with partition natural every participant is a client: "
                             "leave clients out")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {self.device!r} cannot be used here: take cpu, or cuda on a machine that has it"
                             ) from error
        return self

    def data(self) -> Parts:
        """The prepared parts in the run's dtype, pixels still as bytes; the same object while task and file stay.

        Raises `ValueError` or `FileNotFoundError` if they cannot be made, or a group has no training record.
        """
        return _data(self, self.modified)

    @property
    def text(self) -> str:
        """The task as messages carry it, in JSON."""
        return _text(self)

    @property
    def modified(self) -> int:
        """When the file of the user's own was last changed, in nanoseconds; 0 if there is none."""
        return Path(self.csv).stat().st_mtime_ns if self.csv and Path(self.csv).is_file() else 0

    def clients_data(self, node: int = 0, nodes: int = 1) -> Shares:
        """What each of the clients node, node + nodes, ... holds, by default each of all; validation and test records
        are dealt like training records.
        """
        parts, groups = self.data(), len(self.data().train.names)
        clients = self._participants() if self.partition == "natural" else self.clients or groups

        def holder(data: GroupedDataset) -> torch.Tensor:
            """The client of each record of one part."""
            if self.partition == "natural":
                return data.participant
            if self.partition == "group":
                return by_group(data.group, groups, clients)
            if self.alpha is not None:
                return by_mixture(data.group, groups, clients, self.alpha, self.seed)
            return by_site(len(data), clients, self.seed)

        return Shares.dealt(parts, {part: holder(data) for part, data in parts}, clients, node, nodes)

    def _participants(self) -> int:
        """How many participants the data set names; raises `ValueError` if it names none."""
        found = max((int(part.participant.max()) + 1 for _, part in self.data() if len(part.participant)), default=0)
        if not found:
            raise ValueError(f"{self.dataset} does not say whose its records are, as partition natural needs: take "
                             "partition site, or group")
        return found

    def public_sizes(self, records: torch.Tensor) -> torch.Tensor:
        """What clients tell of their numbers of records. Never less, so that no record is sampled at a higher rate than
        it is charged for; nothing only if there is none.
        """
        return -(-records // self.round_sizes) * self.round_sizes

    def public(self, protects: Unit) -> str:
        """What everybody is assumed to know of the data, in words, by what is protected."""
        rounded = "" if self.round_sizes == 1 else f" (numbers rounded up to multiples of {self.round_sizes})"
        return PUBLIC[protects] + rounded

    def build_model(self) -> nn.Module:
        """The model with its initial parameters."""
        train = self.data().train
        return published.build(self.model, self.hidden, train.x.shape[1:], train.classes, self.seed, self.torch_dtype)

    @property
    def attributes(self) -> tuple[str | None, ...]:
        """The protected attributes that define the groups; None for the data set's own."""
        return tuple(name.strip() for name in self.group.split(",")) if self.group else (None,)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of features and parameters."""
        return torch.float64 if self.dtype == "float64" else torch.float32


@lru_cache(maxsize=4)
def _text(task: Task) -> str:
    """See `Task.text`: every message of a run asks for it."""
    return task.model_dump_json()


@lru_cache(maxsize=4)
def _source(dataset: str, csv: str | None, label: str | None, group: str | None, missing: Missing,
            participant: str | None, without: tuple[str, ...], modified: int) -> GroupedDataset:
    """All records of a data set, or of the state `modified` of a file; of one's own data, without some columns."""
    if csv and label and group:  # imported here, with pandas, which other data do without
        from fedfair.datasets.table import from_csv

        return from_csv(Path(csv), label, group, missing, participant, without)
    if dataset.startswith(HUGGING_FACE) and label and group:
        from fedfair.datasets import hugging_face

        return hugging_face.load(dataset.removeprefix(HUGGING_FACE), label, group, missing, participant,
                                 without=without)
    return DATASETS[dataset].load(group)


@lru_cache(maxsize=4)
def _data(task: Task, modified: int) -> Parts:
    """See `Task.data`; `modified` tells one state of a CSV file from another."""
    own = bool(task.csv) or task.dataset.startswith(HUGGING_FACE)
    later = [name for name in task.without or () if not own or name in task.attributes]
    unread = tuple(name for name in task.without or () if name not in later)
    data = reduce(crossed, [_source(task.dataset, task.csv, task.label, attribute, task.missing, task.participant,
                                    unread, modified) for attribute in task.attributes])
    data = leave_out(data, later)
    data = to_ranges(data, task.ranges) if task.ranges else data
    data = drop_first(data) if task.drop_first else data
    if task.balance:
        data = keep(data, DATASETS[task.dataset].variants[task.balance], task.seed)
    parts = split(data, task.split, task.seed)
    if task.imbalance:
        parts = reduce_group(parts, task.imbalance, task.seed)
    absent = [name for name, size in zip(data.names, parts.train.group_sizes(), strict=True) if size == 0]
    if absent:
        raise ValueError(f"group {', '.join(map(repr, absent))} has no record in the training part: take a larger "
                         "share for it, or leave the group out of the data")
    if not len(parts.test):
        raise ValueError(f"the test part has none of the {len(data):,} records: take a larger share for it in split, "
                         f"which is {list(task.split)}")
    parts = standardise(parts)
    dtype = task.torch_dtype
    if task.pixels != (0, 1) and parts.train.x.dtype != torch.uint8:
        raise ValueError(f"pixels is {list(task.pixels)}, but the records of {task.dataset} are not images: leave it "
                         "out")

    def cast(part: GroupedDataset) -> GroupedDataset:
        """One part in the task's dtype; pixels stay bytes until they are used."""
        if part.x.dtype == torch.uint8:
            return replace(part, pixels=Pixels(*task.pixels, dtype))
        return replace(part, x=part.x.to(dtype)) if part.x.is_floating_point() else part

    return replace(parts, train=cast(parts.train), valid=cast(parts.valid), test=cast(parts.test))
