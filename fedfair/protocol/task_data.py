"""The data of a task: loaded from their source, made into features, and split into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch

from fedfair.datasets import DATASETS, GroupedDataset, Parts
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.features.bounded import FeatureMap, bounded
from fedfair.datasets.features.cells import with_features
from fedfair.datasets.features.features import (
    Range,
    Standard,
    as_numbers,
    binned,
    drop_first,
    leave_out,
    public_edges,
    quantiles,
    standardise,
    to_ranges,
    to_standards,
)
from fedfair.datasets.grouped import Pixels, crossed, weighted
from fedfair.datasets.schema import Agreement, Listed, Schema, prepared
from fedfair.datasets.split import Missing, Together, dealt, keep, reduce_group, shuffled, split, with_wrong_groups
from fedfair.gradients.kernels import give_back
from fedfair.plugins.registry import unknown

HUGGING_FACE = "hf:"
"""Prefix of the names of data sets in Hugging Face's format."""


class Preparation(NamedTuple):
    """What the data of a task follow from: fields and properties of `fedfair.protocol.task.Task`, by their names.

    `modified` tells one state of a file from another.
    """

    dataset: str
    csv: str | None
    label: str | None
    missing: Missing
    participant: str | None
    record_weight: str | None
    site: str | None
    class_weights: tuple[tuple[str, float], ...] | None
    is_own: bool
    attributes: tuple[str | None, ...]
    attribute_columns: tuple[str, ...]
    attribute_in_model: bool
    without: tuple[str, ...] | None
    asked: Asked
    numbers: tuple[str, ...]
    prepares: str
    ranges: tuple[Range, ...] | None
    schema_of_columns: Schema
    agreement: Agreement | None
    known_columns: frozenset[str]
    drop_first: bool
    feature_map: FeatureMap | None
    bins: int
    edges: tuple[tuple[str, tuple[float, ...]], ...] | None
    scalings: tuple[Standard, ...] | None
    balance: str | None
    split: tuple[float, float, float]
    splits_by: str
    duplicates: str
    imbalance: str | None
    wrong_groups: float
    seed: int
    pixels: tuple[float, float]
    torch_dtype: torch.dtype
    modified: int


_IN_USE: WeakValueDictionary[Preparation, Parts] = WeakValueDictionary()
"""Data that somebody holds: many runs that go on together prepare theirs once."""

_LATEST: dict[Preparation, Parts] = {}
_TASKS = 4  # whose data are kept
MANY = 2**20
"""Records beyond which the data of one task alone are kept, and memory that was freed is given back."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def prepared_data(task: Preparation) -> Parts:
    """Return the prepared data of a task; see `fedfair.protocol.task.Task.data`.

    Args:
        task: What they follow from.

    Returns:
        The same object as long as somebody holds it, and of the latest tasks: of four, if their records are few.
    """
    parts = _IN_USE.get(task) or _prepared(task)
    _IN_USE[task] = parts
    return keep_latest(_LATEST, task, parts, _records, _TASKS)


def keep_latest(latest: dict[_K, _V], task: _K, made: _V, records: Callable[[_V], int], tasks: int) -> _V:
    """Return what was made for a task, and keep it with that of the tasks before; alone if they hold many records.

    Args:
        latest: What is kept, in the order in which it was asked for.
        task: The task.
        made: What was made for it.
        records: Returns how many records something holds.
        tasks: The most tasks that are kept.
    """
    latest.pop(task, None)
    latest[task] = made
    while len(latest) > 1 and (len(latest) > tasks or sum(map(records, latest.values())) > MANY):
        del latest[next(iter(latest))]
    return made


def _records(parts: Parts) -> int:
    """Return the number of records of all parts."""
    return sum(len(data) for _, data in parts)


def forget() -> None:
    """Load and prepare all data anew from now on, also of records that changed while their file did not."""
    _IN_USE.clear()
    _LATEST.clear()
    _source.cache_clear()


def _prepared(task: Preparation) -> Parts:
    """Prepare the data of a task."""
    data = weighted(with_features(_loaded(task), partial(_features, task)), task.class_weights or ())
    if task.balance:
        data = keep(data, DATASETS[task.dataset].variants[task.balance], task.seed)
    together = Together(task.splits_by == "participant", task.duplicates == "together")
    parts = split(data, task.split, task.seed, together, dealt if task.is_own else shuffled)
    if task.imbalance:
        parts = reduce_group(parts, task.imbalance, task.seed)
    if task.wrong_groups:
        parts = with_wrong_groups(parts, task.wrong_groups, task.seed)
    if task.agreement is None:
        _refuse_empty(task, parts)
        _refuse_pixels(task, parts)
    parts = _by_records(task, parts) if task.prepares == "records" else parts
    known = not _to_be_learned(task, parts.train)
    norm = partial(bounded, kind=task.feature_map) if task.feature_map and known else lambda part: part
    train, valid, test = (_cast(task, with_features(part, norm)) for _, part in parts)
    return replace(parts, train=train, valid=valid, test=test)


def _loaded(task: Preparation) -> GroupedDataset:
    """Load all records of a task, grouped by the intersections of its attributes."""
    if task.agreement is not None:
        return _agreed(task.agreement, task.csv, task.modified)
    numbers = None if task.prepares == "records" else tuple(sorted(
        {*(known.column for known in task.schema_of_columns.ranges), *task.numbers,
         *(column for column, _ in task.asked.quantities)}))
    unread = tuple(name for name in task.without or () if task.is_own and name not in task.attributes)
    return reduce(crossed, [_source(task.dataset, task.csv, task.label, attribute, task.missing, task.participant,
                                    task.record_weight, task.site, unread, numbers, task.asked, task.modified)
                            for attribute in task.attributes])


@lru_cache(maxsize=4)
def _agreed(known: Agreement, csv: str | None, modified: int) -> GroupedDataset:
    """Load the records of a node's own file in its state `modified`; no record where there is no file."""
    from fedfair.datasets.node_table import no_records, records_of

    return records_of(Path(csv), known) if csv else no_records(known)


@lru_cache(maxsize=4)
def _source(dataset: str, csv: str | None, label: str | None, group: str | None, missing: Missing,
            participant: str | None, weight: str | None, site: str | None, without: tuple[str, ...],
            numbers: tuple[str, ...] | None, asked: Asked, modified: int) -> GroupedDataset:
    """Load all records of a data set, or of a file in its state `modified`; a user's data without some columns.

    `numbers` are the columns of a user's data that are declared to hold numbers; None if their values tell.
    """
    if csv and label and group:  # imported here, with pandas, which other data do without
        from fedfair.datasets.table import from_csv

        data = from_csv(Path(csv), label, group, missing, participant, without, numbers, asked, weight, site)
        give_back()
        return data
    if dataset.startswith(HUGGING_FACE) and label and group:
        from fedfair.datasets import hugging_face

        return hugging_face.load(dataset.removeprefix(HUGGING_FACE), label, group, missing, participant,
                                 without=without, numbers=numbers, asked=asked, weight=weight)
    return DATASETS[dataset].load(group)


def _features(task: Preparation, data: GroupedDataset) -> GroupedDataset:
    """Choose the features, and make them of each record alone unless preprocessing is that of the records."""
    mode = task.prepares
    _refuse_absent(task, data)
    data = leave_out(data, _left_out(task, data))
    to_be_learned = _to_be_learned(task, data)
    if mode == "records":
        data = to_ranges(data, task.ranges) if task.ranges and task.feature_map != "binned" else data
    elif not to_be_learned:
        schema = _with_groups(task.schema_of_columns, data, task.attributes)
        data = prepared(data, schema, partial(_with_numbers, task))
    return drop_first(data) if task.drop_first and not to_be_learned else data


def _refuse_absent(task: Preparation, data: GroupedDataset) -> None:
    """Raise `ValueError` if settings have a range or a list for a column that a user's data have not.

    Of a misspelled one they would be learned, or paid for with epsilon, all the same. Where the records tell what
    columns hold, those with nothing to learn from are gone, so that nobody can tell.
    """
    if not task.is_own or task.agreement is not None or task.prepares == "records":
        return
    roles = (task.label, *task.attributes, task.participant, task.record_weight, task.site)
    there = [*dict.fromkeys((*data.columns, *filter(None, roles), *(task.without or ())))]
    known = task.schema_of_columns
    for column in (*(each.column for each in known.ranges), *(each.column for each in known.categories)):
        if column not in there:
            raise unknown("column", column, there)


def _to_be_learned(task: Preparation, data: GroupedDataset) -> bool:
    """Return whether ranges or lists of some columns are yet to be learned from a noisy release."""
    return task.prepares == "private" and not {*data.columns} <= task.known_columns


def _with_numbers(task: Preparation, data: GroupedDataset, ranges: Sequence[Range]) -> GroupedDataset:
    """Make features of the numbers by what is publicly known of them: bins, or scaled numbers."""
    if task.feature_map == "binned":
        edges = {known.column: public_edges(known, task.bins) for known in ranges} | dict(task.edges or ())
        return binned(as_numbers(data, ranges), edges)
    if task.feature_map == "standardised":
        return to_standards(as_numbers(data, ranges), task.scalings or ())
    return to_ranges(data, ranges)


def _by_records(task: Preparation, parts: Parts) -> Parts:
    """Make features of the numbers by the training records, which is not private: bins, or standardised numbers."""
    if task.feature_map != "binned":
        return standardise(parts)
    train = parts.train
    edges = {train.columns[place]: quantiles(train.x[:, place], task.bins) for place in train.numeric}
    edges |= {known.column: public_edges(known, task.bins) for known in task.ranges or ()} | dict(task.edges or ())
    train, valid, test = (binned(as_numbers(part, task.ranges or ()), edges) for _, part in parts)
    return replace(parts, train=train, valid=valid, test=test)


def _left_out(task: Preparation, data: GroupedDataset) -> list[str]:
    """Return the columns and categories to be left out once they are read; the sensitive attributes are among them."""
    chosen = [name for name in task.without or () if not task.is_own or name in task.attributes]
    attributes = () if task.attribute_in_model else task.attribute_columns
    left_out = [*chosen, *(name for name in attributes if name in data.columns and name not in chosen)]
    if data.columns and {*data.columns} <= {*left_out}:
        raise ValueError(f"no column is left to learn from without {', '.join(left_out)}: give the table more columns, "
                         "or take the sensitive attribute as a feature by attribute_in_model = true")
    return left_out


def _refuse_empty(task: Preparation, parts: Parts) -> None:
    """Raise `ValueError` if a group has no training record, or the test part has none.

    Not where rows are the user's and protected: then a single row would decide whether there is a model, and a group
    without records is a group of noise.
    """
    if task.is_own and task.prepares != "records":
        return
    train = parts.train
    absent = [name for name, size in zip(train.names, train.group_sizes(), strict=True) if size == 0]
    if absent:
        raise ValueError(f"group {', '.join(map(repr, absent))} has no record in the training part: take a larger "
                         "share for it, or leave the group out of the data")
    if not len(parts.test) and task.split[2]:
        raise ValueError(f"the test part has none of the {_records(parts):,} records: take a larger share for it in "
                         f"split, which is {list(task.split)}")


def _refuse_pixels(task: Preparation, parts: Parts) -> None:
    """Raise `ValueError` if the mean and deviation of pixels are given for what are no images."""
    if task.pixels != (0, 1) and parts.train.x.dtype != torch.uint8:
        raise ValueError(f"pixels is {list(task.pixels)}, but the records of {task.dataset} are not images: leave it "
                         "out")


def _cast(task: Preparation, part: GroupedDataset) -> GroupedDataset:
    """Return one part in the task's dtype; pixels stay bytes until they are used."""
    dtype = task.torch_dtype
    if part.x.dtype == torch.uint8:
        return replace(part, pixels=Pixels(*task.pixels, dtype))
    return replace(part, x=part.x.to(dtype)) if part.x.is_floating_point() else part


def _with_groups(schema: Schema, data: GroupedDataset, attributes: tuple[str | None, ...]) -> Schema:
    """Return a schema that lists also the values of the sensitive attributes, which are public by assumption."""
    named = schema.columns
    groups = [Listed(name, data.encoding.categories(name)) for name in attributes
              if name in data.columns and name not in named and name is not None]
    return schema.overridden((), groups)
