"""Which columns of a table a model is given, and how their numbers are scaled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.registry import unknown


class Range(NamedTuple):
    """The public range of a numeric column: what is known of its values without looking at the records."""

    column: str
    low: float
    high: float


def leave_out(data: GroupedDataset, columns: Sequence[str]) -> GroupedDataset:
    """The data without some columns of its table, one-hot features of theirs included; groups and labels stay.

    Raises `ValueError` for a column that is not among the features, or if none would be left.
    """
    for column in columns:
        if column not in data.columns:
            raise unknown("column", column, data.columns or ("none: the records are no table",))
    kept = [place for place, column in enumerate(data.columns) if column not in columns]
    if not kept:
        raise ValueError(f"without is {', '.join(columns)}: no feature would be left to learn from")
    return replace(data, x=data.x[:, kept], columns=tuple(data.columns[place] for place in kept),
                   numeric=tuple(new for new, old in enumerate(kept) if old in data.numeric))


def to_ranges(data: GroupedDataset, ranges: Sequence[Range]) -> GroupedDataset:
    """The data with every numeric column scaled from its public range to [0, 1], values beyond it moved to its ends.

    No record has a part in this, unlike in `standardise`. Raises `ValueError` unless every numeric column has one
    range, finite and not empty, and no other column has any.
    """
    numeric, x = {data.columns[place]: place for place in data.numeric}, data.x.clone()
    for column, low, high in ranges:
        if column not in data.columns:
            raise unknown("numeric column", column, tuple(numeric) or ("none: leave ranges out",))
        if column not in numeric:
            raise ValueError(f"ranges names {column} twice, or it is not numeric: numeric columns without a range are "
                             f"{', '.join(numeric) or 'none'}")
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"the range of {column} is {low:g} to {high:g}: give two numbers, the smaller first")
        place = numeric.pop(column)
        x[:, place] = (x[:, place].clamp(low, high) - low) / (high - low)
    if numeric:
        raise ValueError(f"ranges says nothing of {', '.join(numeric)}: give every numeric column its public range, or "
                         "leave ranges out, and all are standardised by the training records, which is not private")
    return replace(data, x=x, numeric=())


def standardise(parts: Parts) -> Parts:
    """Centre and scale the numeric columns by mean and standard deviation of the training part.

    These statistics are not private; a run says so.
    """
    columns = list(parts.train.numeric)
    if not columns:
        return parts
    values = parts.train.x[:, columns]
    mean, deviation = values.mean(0), values.std(0, correction=0)
    deviation[deviation == 0] = 1

    def scaled(data: GroupedDataset) -> GroupedDataset:
        x = data.x.clone()
        x[:, columns] = (x[:, columns] - mean) / deviation
        return replace(data, x=x, numeric=())

    return Parts(scaled(parts.train), scaled(parts.valid), scaled(parts.test))
