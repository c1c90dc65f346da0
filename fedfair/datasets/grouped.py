"""A labelled data set in which every record belongs to one protected group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.encoding import NO_TABLE, Encoding
from fedfair.fairness.metrics import RESERVED

PARTS = ("train", "valid", "test")
_ROWS, _NUMBERS = 4096, 2**20  # at most so many go through a model together; a convolution makes dozens of one number


class Pixels(NamedTuple):
    """How bytes, 0 to 255, become features: scaled to [0, 1], and standardised with a public `mean` and `deviation`."""

    mean: float
    deviation: float
    dtype: torch.dtype

    def scaled(self, x: Tensor) -> Tensor:
        """Bytes as features, of the same shape."""
        return x.to(self.dtype).div_(255).sub_(self.mean).div_(self.deviation)


@dataclass(frozen=True)
class GroupedDataset:
    """n records: `x` `[n, ...]`, labels `y` `[n]` in 0..classes-1, and `group` `[n]`, numbers into `names`.

    `labels` are the names of the classes in the order of their numbers; without any, they are called "0", "1", ....
    Where `pixels` is given, `x` are bytes. They stay bytes, a quarter of the memory, until a model needs some of them:
    `features` makes them what `pixels` says.
    `encoding` says what each column of a two-dimensional `x` was made of, and is empty if there is no table.
    `records` `[n]` numbers each record once and for all: its random draws hang on it, so that they do not depend on
    where the record lies.
    `participant` `[n]` is the number of the person whose record it is, 0, 1, ..., or empty if nobody is known.
    `published` `[n]`, numbers into PARTS, says which part the source itself put a record into; it is empty if the
    source has no parts. Raises `ValueError` if the parts do not fit together, or a name is one of
    `fedfair.fairness.metrics.RESERVED`.
    """

    x: Tensor
    y: Tensor
    group: Tensor
    names: tuple[str, ...]
    classes: int
    labels: tuple[str, ...] = ()
    records: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    participant: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    published: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    pixels: Pixels | None = None
    encoding: Encoding = NO_TABLE

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == len(self.group):
            raise ValueError(f"x, y and group have {len(self.x)}, {len(self.y)} and {len(self.group)} records: "
                             "they must have the same number")
        if not _within(self.group, len(self.names)):
            raise ValueError(f"group numbers must lie in 0..{len(self.names) - 1}, one for each of {self.names}")
        for name in RESERVED:
            if name in self.names:
                raise ValueError(f"a group is called {name!r}, as results call figures of all groups together: give it "
                                 "another name")
        if not _within(self.y, self.classes):
            raise ValueError(f"labels must lie in 0..{self.classes - 1}")
        for name in ("participant", "published", "records"):
            if len(getattr(self, name)) not in (0, len(self)):
                raise ValueError(f"{name} has {len(getattr(self, name))} numbers, but there are {len(self)} records: "
                                 "give one for each, or none at all")
        if self.encoding.features and self.x.shape[1:] != (len(self.encoding.features),):
            raise ValueError(f"encoding has {len(self.encoding.features)} features, but x is of shape "
                             f"{list(self.x.shape)}: give one for each of its columns, or none at all")
        if not self.labels:
            object.__setattr__(self, "labels", tuple(map(str, range(self.classes))))
        if len(self.labels) != self.classes:
            raise ValueError(f"labels names {len(self.labels)} classes, but there are {self.classes}: give each a "
                             "name, or none at all")
        if len(self.records) != len(self):
            object.__setattr__(self, "records", torch.arange(len(self)))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the source's table that each column of `x` comes from, one-hot ones alike."""
        return tuple(feature.column for feature in self.encoding.features)

    @property
    def categories(self) -> tuple[str | None, ...]:
        """The category that each column of `x` stands for, None for one of numbers."""
        return tuple(feature.category for feature in self.encoding.features)

    @property
    def numeric(self) -> tuple[int, ...]:
        """The columns of `x` that are numbers which are not yet scaled."""
        return tuple(place for place, feature in enumerate(self.encoding.features) if feature.is_raw)

    def take(self, rows: Tensor | slice) -> GroupedDataset:
        """The records at `rows` `[m]`, with their numbers: a copy, or of a slice a view."""
        held = {name: getattr(self, name) for name in ("x", "y", "group", "records", "participant", "published")}
        return replace(self, **{name: values[rows] for name, values in held.items() if len(values)})

    def features(self, rows: Tensor | slice = slice(None), device: str | torch.device = "cpu") -> Tensor:
        """What a model is given of the records at `rows` `[m]`, by default of all: `[m, ...]`, on the device."""
        x = self.x.index_select(0, rows) if isinstance(rows, Tensor) else self.x[rows]
        return self.pixels.scaled(x.to(device)) if self.pixels else x.to(device)

    def portions(self, rows: Tensor) -> tuple[Tensor, ...]:
        """`rows` `[m]` in pieces whose records can go through a model together without filling the memory; no rows are
        one empty piece.
        """
        return torch.split(rows, max(1, min(_ROWS, _NUMBERS // max(1, self.x.shape[1:].numel()))))

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """The rows `[m]` of the first of each kind of record, alike in `x`, `y` and `group`, and how many there are of
        it `[m]`: all that a sum over records depends on.

        Tables hold many twice: two in three records of COMPAS and of Dutch, one in nine of Adult.
        """
        x = np.ascontiguousarray(self.x.numpy())
        kinds = list(zip((blake2b(one, digest_size=16).digest() for one in x), self.y.tolist(), self.group.tolist(),
                         strict=True))
        counted, first = Counter(kinds), dict(zip(reversed(kinds), reversed(range(len(kinds))), strict=True))
        rows, times = ([column[kind] for kind in counted] for column in (first, counted))
        return torch.tensor(rows, dtype=torch.long), torch.tensor(times, dtype=torch.long)

    def group_sizes(self) -> tuple[int, ...]:
        """How many records each group has: `[K]`."""
        return tuple(torch.bincount(self.group, minlength=len(self.names)).tolist())


@dataclass(frozen=True)
class Parts:
    """The training, validation and test parts of one data set; a part may be empty.

    `published` names those that the source itself made; the others are drawn at random from what it has besides.
    """

    train: GroupedDataset
    valid: GroupedDataset
    test: GroupedDataset
    published: tuple[str, ...] = field(default=(), kw_only=True)

    def __iter__(self) -> Iterator[tuple[str, GroupedDataset]]:
        return iter(zip(PARTS, (self.train, self.valid, self.test), strict=True))


def crossed(one: GroupedDataset, other: GroupedDataset) -> GroupedDataset:
    """The records of `one`, grouped by the intersections of its groups with those of `other` that occur.

    `other` holds the same records in the same order. Raises `ValueError` if it cannot.
    """
    if len(one) != len(other):
        raise ValueError(f"groups of {len(one)} and of {len(other)} records cannot be crossed")
    pairs = one.group * len(other.names) + other.group
    there = torch.bincount(pairs).nonzero().flatten()
    names = tuple(f"{one.names[pair // len(other.names)]} & {other.names[pair % len(other.names)]}"
                  for pair in there.tolist())
    return replace(one, group=torch.searchsorted(there, pairs), names=names)


def _within(numbers: Tensor, end: int) -> bool:
    """Whether all numbers lie in 0..end-1."""
    return len(numbers) == 0 or (int(numbers.min()) >= 0 and int(numbers.max()) < end)
