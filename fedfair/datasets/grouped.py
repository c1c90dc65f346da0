"""A labelled data set in which every record belongs to one protected group.

By two sensitive attributes at once every intersection of their groups is a group.

Weights of records, and of classes, say by how much each record's loss is multiplied, before its gradient is clipped. A
rule that clips weighted gradients bounds what a record adds, whatever its weight, so that weights add nothing to the
sensitivity. A record's weight depends on that record and on the settings alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.features.encoding import NO_TABLE, Encoding
from fedfair.plugins.registry import RESERVED, unknown

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("train", "valid", "test")
_BY_RECORD = ("x", "y", "group", "records", "participant", "person", "content", "published", "weight", "site")
# The most that go through a model together, in records and in numbers; a convolution makes dozens of each number.
_ROWS, _NUMBERS = 4096, 2**20

LARGEST_WEIGHT = 1e6
"""The largest weight: coefficients of larger ones would leave the range in which single precision is exact enough."""


class Pixels(NamedTuple):
    """How bytes, 0 to 255, become features: scaled to [0, 1], then standardised by a public `mean` and `deviation`."""

    mean: float
    deviation: float
    dtype: torch.dtype

    def scaled(self, x: Tensor) -> Tensor:
        """Turn bytes into features of the same shape."""
        return x.to(self.dtype).div_(255).sub_(self.mean).div_(self.deviation)


@dataclass(frozen=True)
class GroupedDataset:
    """Records that each have a label and belong to one group.

    Raises `ValueError` if the fields do not fit together, or if a group has one of the names
    `fedfair.plugins.registry.RESERVED`.

    Args:
        x: Features, `[n, ...]`; bytes if `pixels` is given.
        y: Labels, `[n]`, from 0 to `classes` - 1.
        group: Group numbers, `[n]`, positions in `names`.
        names: Names of the groups, `[K]`.
        classes: Number of classes.
        labels: Names of the classes in the order of their numbers; by default "0", "1", ....
        records: Number of each record, `[n]`, by default its row. Random draws depend on it, and not on where the
            record lies.
        participant: Number of the person whose record each is, `[n]`, from 0; empty if unknown.
        person: Number of that person, `[n]`, which follows from the person's name alone; empty if unknown.
        content: Number `[n]` that follows from a row's cells alone, by which duplicates are dealt; empty if unknown.
        published: Part that the source put each record into, `[n]`, positions in `PARTS`; empty if it has no parts.
        pixels: How a model's features are made of bytes. They are kept as bytes, a quarter of the memory, until a model
            needs them; see `features`.
        encoding: What each column of a two-dimensional `x` was made of; empty if there is no table.
        weight: Factor of each record's loss, `[n]`, from 0; empty if all are alike. See `fedfair.datasets.grouped`.
        site: Number of each record's site, `[n]`, positions in `sites`; empty if there are none.
        sites: Names of the sites.
        rows: Number of rows of the table that the records are from, empty ones too; 0 if it is not needed.

    Examples:
        >>> x, group = torch.arange(10.0).view(5, 2), torch.tensor([0, 0, 1, 1, 1])
        >>> data = GroupedDataset(x, torch.tensor([0, 1, 0, 1, 1]), group, ("women", "men"), classes=2)
        >>> data.group_sizes(), data.take(torch.tensor([4, 1])).records, len(data.portions(torch.arange(5)))
        ((2, 3), tensor([4, 1]), 1)
        >>> len(data.without_records()), data.without_records().y.untyped_storage().nbytes()
        (0, 0)
        >>> data.features(torch.tensor([4, 1]))
        tensor([[8., 9.],
                [2., 3.]])
    """

    x: Tensor
    y: Tensor
    group: Tensor
    names: tuple[str, ...]
    classes: int
    labels: tuple[str, ...] = ()
    records: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    participant: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    person: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    content: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    published: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    pixels: Pixels | None = None
    encoding: Encoding = NO_TABLE
    weight: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    site: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    sites: tuple[str, ...] = ()
    rows: int = 0

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == len(self.group):
            raise ValueError(f"x, y and group have {len(self.x)}, {len(self.y)} and {len(self.group)} records: "
                             "they must have the same number")
        if not _within(self.group, len(self.names)):
            raise ValueError(f"group numbers must lie in 0..{len(self.names) - 1}, one for each of {self.names}")
        for name in RESERVED:
            if name in (*self.names, *self.sites):
                raise ValueError(f"a {'group' if name in self.names else 'site'} is called {name!r}, as results call "
                                 "figures of all together: give it another name")
        if not _within(self.y, self.classes):
            raise ValueError(f"labels must lie in 0..{self.classes - 1}")
        for name in ("participant", "person", "content", "published", "records", "weight", "site"):
            if len(getattr(self, name)) not in (0, len(self)):
                raise ValueError(f"{name} has {len(getattr(self, name))} numbers, but there are {len(self)} records: "
                                 "give one for each, or none at all")
        width = len(self.encoding.features) + (self.encoding.bounding is not None)
        if self.encoding.features and self.x.shape[1:] != (width,):
            raise ValueError(f"encoding has {width} features, but x is of shape {list(self.x.shape)}: give one for "
                             "each of its columns, or none at all")
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
        """The column of the table that each column of `x` was made of."""
        return tuple(feature.column for feature in self.encoding.features)

    @property
    def categories(self) -> tuple[str | None, ...]:
        """The category that each column of `x` stands for; None where it holds numbers."""
        return tuple(feature.category for feature in self.encoding.features)

    @property
    def numeric(self) -> tuple[int, ...]:
        """The positions of the columns of `x` that hold numbers not yet scaled."""
        return tuple(position for position, feature in enumerate(self.encoding.features) if feature.is_raw)

    def take(self, rows: Tensor | slice) -> GroupedDataset:
        """Return the records at `rows` `[m]`, which keep their numbers: a copy, or a view if `rows` is a slice."""
        held = {name: getattr(self, name) for name in _BY_RECORD}
        return replace(self, **{name: values[rows] for name, values in held.items() if len(values)})

    def without_records(self) -> GroupedDataset:
        """Return the same without a record, to be kept: a view of none would hold all, and show them in a pickle."""
        return replace(self, **{name: getattr(self, name)[:0].clone() for name in _BY_RECORD})

    def features(self, rows: Tensor | slice = slice(None), device: str | torch.device = "cpu") -> Tensor:
        """Return a model's inputs for the records at `rows` `[m]`, by default for all: `[m, ...]`, on the device."""
        x = self.x.index_select(0, rows) if isinstance(rows, Tensor) else self.x[rows]
        return self.pixels.scaled(x.to(device)) if self.pixels else x.to(device)

    def portions(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Split `rows` `[m]` into pieces that can go through a model together without filling the memory.

        No rows are no piece: not every model can be given none.
        """
        if not len(rows):
            return ()
        return torch.split(rows, max(1, min(_ROWS, _NUMBERS // max(1, self.x.shape[1:].numel()))))

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """The row of the first record of each kind, `[m]`, and the number of records of that kind, `[m]`.

        Records are of one kind if they are equal in `x`, `y` and `group`; a sum over records depends on nothing else.
        Of the training records, two in three are equal to an earlier one in COMPAS and Dutch, one in nine in Adult.
        """
        digests = (blake2b(one, digest_size=16).digest() for one in row_bytes(self.x))
        kinds = list(zip(digests, self.y.tolist(), self.group.tolist(), strict=True))
        counted, first = Counter(kinds), dict(zip(reversed(kinds), reversed(range(len(kinds))), strict=True))
        rows, times = ([column[kind] for kind in counted] for column in (first, counted))
        return torch.tensor(rows, dtype=torch.long), torch.tensor(times, dtype=torch.long)

    def group_sizes(self) -> tuple[int, ...]:
        """Return the number of records of each group, `[K]`."""
        return tuple(torch.bincount(self.group, minlength=len(self.names)).tolist())


@dataclass(frozen=True)
class Parts:
    """The training, validation and test parts of one data set; a part may be empty.

    `published` names the parts that the source made; the other parts were drawn at random from its other records.
    """

    train: GroupedDataset
    valid: GroupedDataset
    test: GroupedDataset
    published: tuple[str, ...] = field(default=(), kw_only=True)

    def __iter__(self) -> Iterator[tuple[str, GroupedDataset]]:
        return iter(zip(PARTS, (self.train, self.valid, self.test), strict=True))


def row_bytes(x: Tensor) -> Iterator[bytes]:
    """Yield the bytes of each record's features, `[n, ...]`, of which only some are in memory at a time.

    Args:
        x: Features of the records.

    Examples:
        >>> [*row_bytes(torch.tensor([[65, 66], [67, 68]], dtype=torch.uint8))]
        [b'AB', b'CD']
    """
    for first in range(0, len(x), _ROWS):
        yield from (one.tobytes() for one in x[first:first + _ROWS].numpy())


def _within(numbers: Tensor, end: int) -> bool:
    """Return whether all numbers lie in 0..end-1."""
    return len(numbers) == 0 or (int(numbers.min()) >= 0 and int(numbers.max()) < end)


def crossed(one: GroupedDataset, other: GroupedDataset) -> GroupedDataset:
    """Return the records of `one`, grouped by those intersections of its groups with the groups of `other` that occur.

    `other` must hold the same records in the same order. Raises `ValueError` if it has another number of records.
    """
    if len(one) != len(other):
        raise ValueError(f"groups of {len(one)} and of {len(other)} records cannot be crossed")
    pairs = one.group * len(other.names) + other.group
    occurring = torch.bincount(pairs).nonzero().flatten()
    names = tuple(f"{one.names[pair // len(other.names)]} & {other.names[pair % len(other.names)]}"
                  for pair in occurring.tolist())
    return replace(one, group=torch.searchsorted(occurring, pairs), names=names)


def weights_of(column: pd.Series) -> Tensor:
    """Return the weights of the records in a column, `[n]`, in double precision.

    Args:
        column: One number for each record.

    Raises:
        ValueError: If one of them is no number from 0 to `LARGEST_WEIGHT`, or if all are 0.
    """
    import pandas as pd  # here, since a process that answers for other data does without

    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    strange = ~((values >= 0) & (values <= LARGEST_WEIGHT))
    if strange.any():
        at = int(strange.argmax())
        raise ValueError(f"the weight column {str(column.name)!r} has {str(column.iloc[at])!r} in row "
                         f"{column.index[at] + 1}: a weight is a number from 0 to {LARGEST_WEIGHT:,.0f}; correct it")
    if not values.any():
        raise ValueError(f"the weight column {str(column.name)!r} is 0 in every row: nothing would be trained")
    return torch.tensor(values)


def weighted(data: GroupedDataset, class_weights: Sequence[tuple[str, float]]) -> GroupedDataset:
    """Return the records with their weights multiplied by those of their classes, 1 for a class that is not named.

    Args:
        data: Records, with weights of their own or not.
        class_weights: Weight by the name of a class.

    Raises:
        ValueError: For an unknown class.
    """
    if not class_weights:
        return data
    by_class = torch.ones(data.classes, dtype=torch.float64)
    for name, weight in class_weights:
        if name not in data.labels:
            raise unknown("class of class_weights", name, data.labels)
        by_class[data.labels.index(name)] = weight
    factors = by_class[data.y]
    return replace(data, weight=data.weight * factors if len(data.weight) else factors)
