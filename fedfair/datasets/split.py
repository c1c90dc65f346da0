"""From a source to training, validation and test parts: variant, split, reduced group.

There are two ways to draw the parts. Records of a table of the user's are dealt each by itself (`dealt`): which part a
record is in follows from the seed and from the record alone, so that no record decides where another one is. Published
data sets are shuffled (`shuffled`), as papers do, which makes parts of exact sizes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.datasets.grouped import PARTS, GroupedDataset, Parts, row_bytes
from fedfair.datasets.names import warn_once
from fedfair.mechanisms.randomness import generator, key, keyed_hash, uniform
from fedfair.plugins.registry import unknown

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


class Together(NamedTuple):
    """Whether all records of a participant, and exact duplicates, go into one part."""

    participants: bool = True
    duplicates: bool = False


def units(data: GroupedDataset, together: Together) -> Tensor | None:
    """Return the unit that each record goes with, numbered from 0, `[n]`; None if every record goes alone.

    Args:
        data: Records, which name their participants or not.
        together: What goes into one part.
    """
    ties = [data.participant] if together.participants and len(data.participant) else []
    ties += [_kinds(data)] if together.duplicates and len(data) else []
    if not ties:
        return None
    if len(ties) == 1:
        return torch.unique(ties[0], return_inverse=True)[1]  # type: ignore[no-any-return]
    from scipy.sparse import coo_array  # here, because scipy takes time to import, and few splits need it
    from scipy.sparse.csgraph import connected_components

    records, edges = torch.arange(len(data)).repeat(len(ties)), torch.cat([_firsts(tie) for tie in ties])
    ones = torch.ones(len(edges), dtype=torch.bool)
    places = (records.int().numpy(), edges.int().numpy())  # with longer ones SciPy 1.11 finds no components
    graph = coo_array((ones.numpy(), places), (len(data), len(data)))
    return torch.from_numpy(connected_components(graph, directed=False)[1]).long()


def say_who_is_where(parts: Parts) -> None:
    """Warn, once in a process, of participants with records in the training part and in another one."""
    trained = parts.train.participant
    if any(bool(torch.isin(part.participant, trained).any()) for part in (parts.valid, parts.test)):
        warn_once(_log, "participants have records in several parts: accuracy on the test part is that for people "
                  'whose other records were trained on, not for new people; split_by = "participant" puts all records '
                  "of a participant into one part, unless the source published the parts")


def _kinds(data: GroupedDataset) -> Tensor:
    """Return a number `[n]` that records have in common if they are equal in features, label and group."""
    columns = torch.cat([data.x.flatten(1).double(), data.y.double()[:, None], data.group.double()[:, None]], 1)
    return torch.unique(columns, dim=0, return_inverse=True)[1]  # type: ignore[no-any-return]


def _firsts(tie: Tensor) -> Tensor:
    """Return for each record the row of the first record with the same number, `[n]`."""
    order = tie.argsort(stable=True)
    starts = torch.ones(len(tie), dtype=torch.bool)
    starts[1:] = tie[order][1:] != tie[order][:-1]
    firsts = torch.empty_like(order)
    firsts[order] = order[starts][starts.cumsum(0) - 1]
    return firsts


Missing = Literal["refuse", "drop", "keep"]
"""What to do with rows that have missing values: keep them means that a missing value is a value of its own."""


def keep(data: GroupedDataset, sizes: Mapping[str, int], seed: int) -> GroupedDataset:
    """Return a random subset with `sizes` records of each group named and all records of the others, in their order.

    Raises `ValueError` for an unknown group, or for more records than a group has.
    """
    kept = torch.ones(len(data), dtype=torch.bool)
    order = _shuffled(len(data), seed, "keep")
    for name, size in sizes.items():
        if name not in data.names:
            raise unknown("group", name, data.names)
        rows = order[data.group[order] == data.names.index(name)]
        if not 0 <= size <= len(rows):
            raise ValueError(f"group {name!r} has {len(rows)} records here: {size} of them cannot be kept")
        kept[rows[size:]] = False
    return data.take(kept.nonzero().flatten())


_ALONE = Together(participants=False)

Draw = Callable[[GroupedDataset, tuple[float, float], int, Together], tuple[Tensor, Tensor, Tensor]]
"""Draws rows for three parts: two in the given shares, and the rest; by a seed, with what goes together."""


def shuffled(data: GroupedDataset, shares: tuple[float, float], seed: int, together: Together
             ) -> tuple[Tensor, Tensor, Tensor]:
    """Draw three parts of exact sizes by one permutation of all records, or of all that go together.

    Args:
        data: Records.
        shares: Of the first and the second part.
        seed: Random seed.
        together: What goes into one part.
    """
    unit = units(data, together)
    members = len(data) if unit is None else int(unit.max()) + 1
    order = _shuffled(members, seed, "split")
    first = round(shares[0] * members)
    one, two, three = order.tensor_split([first, first + round(shares[1] * members)])
    if unit is None:
        return one, two, three
    one, two, three = (torch.isin(unit, part).nonzero().flatten() for part in (one, two, three))
    return one, two, three


def dealt(data: GroupedDataset, shares: tuple[float, float], seed: int, together: Together
          ) -> tuple[Tensor, Tensor, Tensor]:
    """Deal each record by itself: by a keyed hash of its number, of its person's, or of its content for duplicates.

    The sizes of the parts are random. A record that is changed or left out moves no other one.

    Args:
        data: Records.
        shares: Of the first and the second part.
        seed: Random seed, the key of the hash.
        together: What goes into one part.

    Raises:
        ValueError: If persons as well as duplicates were to go together, which would depend on all records.
    """
    people = together.participants and len(data.participant) > 0
    if people and together.duplicates:
        raise ValueError('duplicates is "together", but records are dealt by participant already, and which chains of '
                         'both there are depends on all records: take split_by = "record", or duplicates = "apart"')
    person = data.person if len(data.person) else data.participant
    content = data.content if len(data.content) or not together.duplicates else _of_features(data)
    number = person if people else content if together.duplicates else data.records
    place = torch.from_numpy(uniform(keyed_hash(key(f"{seed} deal"), number.numpy().astype(np.uint64))))
    part = (place >= shares[0]).long() + (place >= shares[0] + shares[1]).long()
    order = data.group.argsort(stable=True)  # so that one node's clients by group need no order of their own
    one, two, three = (order[part[order] == number] for number in range(len(PARTS)))
    return one, two, three


def numbers_of_rows(columns: Iterable[pd.Series]) -> Tensor:
    """Return a number `[n]` that follows from each row's cells alone, not from features that are learned of all rows.

    Args:
        columns: Columns of the rows, `[n]` each, at least one: numbers, text or categories.
    """
    from pandas.util import hash_pandas_object  # here, with pandas, which other data do without

    mixed: NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
    for column in columns:
        hashed = hash_pandas_object(column, index=False)  # of a category by its name, not by its place
        mixed = np.add(mixed * _ODD, hashed.to_numpy("uint64"), dtype=np.uint64)
    return torch.from_numpy((mixed >> np.uint64(1)).astype(np.int64))


def _of_features(data: GroupedDataset) -> Tensor:
    """Return a number `[n]` that follows from the features, label and group of a record that is no row of a table."""
    names = [f"{data.labels[y]} {data.names[k]}" for y, k in zip(data.y.tolist(), data.group.tolist(), strict=True)]
    return torch.tensor([key(one.hex(), name) >> 1 for one, name in zip(row_bytes(data.x), names, strict=True)])


def numbers_of_names(names: pd.Series) -> Tensor:
    """Return a number `[n]` that follows from each name alone.

    Args:
        names: Names, `[n]`.
    """
    from pandas.util import hash_array  # here, with pandas, which other data do without

    hashed = hash_array(names.astype(str).to_numpy(dtype=object))
    return torch.from_numpy((hashed >> np.uint64(1)).astype(np.int64))


def split(data: GroupedDataset, shares: tuple[float, float, float], seed: int, together: Together = _ALONE,
          draw: Draw = shuffled) -> Parts:
    """Draw training, validation and test parts in the given shares, which sum to 1; a share of 0 is an empty part.

    Published test and validation parts are kept as they are. If only the test part is published, the validation part is
    drawn from the published training part, in the ratio of their shares. Records that go `together` are drawn as one;
    then shares are those of participants, or of whatever else is drawn. The logger warns of participants in several
    parts.
    """
    published = tuple(name for part, name in enumerate(PARTS) if part and bool((data.published == part).any()))
    if len(data.published):
        train, valid, test = ((data.published == part).nonzero().flatten() for part in range(len(PARTS)))
        if len(valid) == 0:
            within, of_train = data.take(train), (shares[0] / (shares[0] + shares[1]), 0.0)
            train, valid = (train[rows] for rows in draw(within, of_train, seed, together)[::2])
        else:
            train = train[_shuffled(len(train), seed, "split")]
    else:
        train, valid, test = draw(data, shares[:2], seed, together)
    none = torch.empty(0, dtype=torch.long)  # no view of none, which would hold all
    data = replace(data, published=none, person=none, content=none)
    parts = Parts(data.take(train), data.take(valid), data.take(test), published=published)
    say_who_is_where(parts)
    return parts


def reduce_group(parts: Parts, imbalance: str, seed: int) -> Parts:
    """Thin out one group of the training part: "8:40" keeps 40 records of group 8, "8:9%" keeps 9 % of them.

    The number of records kept is fixed, because group sizes are public here. Esipova et al. 2023 keep each record of
    class 8 with probability 9 %; "8:9%" keeps exactly the number that this keeps on average. Raises `ValueError` for
    another form.
    """
    name, _, amount = imbalance.rpartition(":")
    try:
        wanted = float(amount.removesuffix("%"))
    except ValueError:
        wanted = -1.0
    if not name or not 0 <= wanted < math.inf or (amount.endswith("%") and wanted > 100):
        raise ValueError(f"imbalance is {imbalance!r}: write GROUP:RECORDS or GROUP:SHARE%, for example 8:40 or 8:9%")
    if name not in parts.train.names:
        raise unknown("group", name, parts.train.names)
    if amount.endswith("%"):
        wanted = wanted / 100 * parts.train.group_sizes()[parts.train.names.index(name)]
    return replace(parts, train=keep(parts.train, {name: round(wanted)}, seed))


def with_wrong_groups(parts: Parts, share: float, seed: int) -> Parts:
    """Draw the group of a share of the training and validation records anew, as randomised response does (Warner 1965).

    The test part keeps its groups, so that figures are those of the true ones.

    Args:
        parts: The parts, of K groups.
        share: Probability that a record's group is replaced by one of all K, each as likely.
        seed: Random seed.

    Examples:
        >>> from fedfair.datasets import DATASETS
        >>> parts = split(DATASETS["digits"].load(None), (0.5, 0.2, 0.3), seed=0)
        >>> wrong = with_wrong_groups(parts, 0.5, seed=0)
        >>> [round(float((own.group != other.group).float().mean()), 2) for (_, own), (_, other) in zip(parts, wrong)]
        [0.45, 0.42, 0.0]
    """
    def drawn(data: GroupedDataset, part: str) -> GroupedDataset:
        """Return one part with groups drawn anew."""
        random = generator(seed, f"wrong groups, {part}")
        is_wrong = torch.rand(len(data), generator=random, dtype=torch.float64) < share
        others = torch.randint(len(data.names), (len(data),), generator=random)
        return replace(data, group=torch.where(is_wrong, others.to(data.group), data.group))

    return replace(parts, train=drawn(parts.train, "train"), valid=drawn(parts.valid, "valid"))


def _shuffled(size: int, seed: int, purpose: str) -> Tensor:
    """Draw a random order of 0..size-1."""
    return torch.randperm(size, generator=generator(seed, purpose))
