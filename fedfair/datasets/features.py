"""Which columns of a table a model is given, and how their numbers are scaled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from fedfair.datasets.encoding import Encoding, Feature, Scaling
from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.plugins.registry import unknown


class Range(NamedTuple):
    """The public range of a numeric column: what is known of its values without looking at the records."""

    column: str
    low: float
    high: float


def leave_out(data: GroupedDataset, columns: Sequence[str]) -> GroupedDataset:
    """The data without some columns of its table, one-hot features of theirs included, or without single categories of
    one-hot columns ("sex=Male"); groups and labels stay.

    Raises `ValueError` for a column or a category that is not among the features, or if none would be left.
    """
    if not columns:
        return data
    features = [(column, "" if category is None else f"{column}={category}")
                for column, category in zip(data.columns, data.categories, strict=True)]
    for name in columns:
        if not any(name in feature for feature in features):
            raise unknown("column", name, _nearby(name, features) or ("none: the records are no table",))
    kept = [place for place, feature in enumerate(features) if not set(feature) & set(columns)]
    if not kept:
        raise ValueError(f"without is {', '.join(columns)}: no feature would be left to learn from")
    return _features(data, kept)


def _nearby(name: str, features: Sequence[tuple[str, str]]) -> list[str]:
    """What might have been meant: a column's categories where it has that column, or else the columns."""
    column = name.partition("=")[0]
    return [category for known, category in features if known == column and category] or [
        *dict.fromkeys(known for known, _ in features)]


def drop_first(data: GroupedDataset) -> GroupedDataset:
    """The data without the first category of every one-hot column, which the others and an intercept tell.

    As `pandas.get_dummies` and scikit-learn's `OneHotEncoder` do when asked. Raises `ValueError` if no column is
    one-hot, or one lacks a category already.
    """
    one_hot = {feature.column for feature in data.encoding.features if feature.category is not None}
    first = {_whole(data, column, "drop_first is set")[0] for column in one_hot}
    if not first:
        raise ValueError("drop_first is set, but no column of the data is one-hot: leave it out")
    return _features(data, [place for place in range(len(data.columns)) if place not in first])


def to_ranges(data: GroupedDataset, ranges: Sequence[Range]) -> GroupedDataset:
    """The data with every numeric column scaled from its public range to [0, 1], values beyond it moved to its ends.

    A one-hot column that is given a range is taken for the number that its categories are codes of. No record has a
    part in this, unlike in `standardise`. Raises `ValueError` unless every numeric column has one range, finite and not
    empty, and every other column that has one holds numbers.
    """
    for column, low, high in ranges:
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"the range of {column} is {low:g} to {high:g}: give two numbers, the smaller first")
        if [named for named, _, _ in ranges].count(column) > 1:
            raise ValueError(f"ranges names {column} twice: leave one of them out")
        data = _as_number(data, column)
    scalings = {column: Scaling(low, high - low, within=True) for column, low, high in ranges}
    unsaid = [data.columns[place] for place in data.numeric if data.columns[place] not in scalings]
    if unsaid:
        raise ValueError(f"ranges says nothing of {', '.join(unsaid)}: give every numeric column its public range, or "
                         "leave ranges out, and all are standardised by the training records, which is not private")
    return _scaled(data, {place: scalings[data.columns[place]] for place in data.numeric})


def _as_number(data: GroupedDataset, column: str) -> GroupedDataset:
    """The data with a one-hot column's codes as one numeric feature, in the place of the first."""
    if column not in data.columns:
        raise unknown("column", column, data.columns or ("none: leave ranges out",))
    if data.columns.index(column) in data.numeric:
        return data
    places = _whole(data, column, f"ranges names {column}")
    held = [str(data.categories[place]) for place in places]
    try:
        codes = torch.tensor([_finite(category) for category in held], dtype=data.x.dtype)
    except ValueError:
        raise ValueError(f"ranges names {column}, which holds no numbers ({', '.join(held)}): leave it out") from None
    x = data.x.clone()
    x[:, places[0]] = x[:, places] @ codes
    kept = [place for place in range(len(data.columns)) if place not in places[1:]]
    features = tuple(Feature(column) if place == places[0] else data.encoding.features[place] for place in kept)
    return replace(data, x=x[:, kept], encoding=data.encoding._replace(features=features))


def _whole(data: GroupedDataset, column: str, asked: str) -> list[int]:
    """The places of a one-hot column's features; raises `ValueError` if a record has none of its categories."""
    places = [place for place, name in enumerate(data.columns) if name == column]
    if not bool((data.x[:, places].sum(1) == 1).all()):
        raise ValueError(f"{asked}, but a category of {column} is left out already: take it out of without")
    return places


def _finite(text: str) -> float:
    """The number that a text is; raises `ValueError` for "nan", "inf" and what is none."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _features(data: GroupedDataset, kept: Sequence[int]) -> GroupedDataset:
    """The data with some of its features: those at the places `kept`, in rising order."""
    features, left_out, decimal = data.encoding
    gone = tuple(feature for place, feature in enumerate(features) if place not in kept)
    return replace(data, x=data.x[:, list(kept)],
                   encoding=Encoding(tuple(features[place] for place in kept), (*left_out, *gone), decimal))


def standardise(parts: Parts) -> Parts:
    """Centre and scale the numeric columns by mean and standard deviation of the training part.

    These statistics are not private; a run says so.
    """
    columns = parts.train.numeric
    if not columns:
        return parts
    values = parts.train.x[:, list(columns)]
    means, deviations = values.mean(0).tolist(), values.std(0, correction=0).tolist()
    scalings = {place: Scaling(mean, deviation or 1.0)
                for place, mean, deviation in zip(columns, means, deviations, strict=True)}
    return replace(parts, train=_scaled(parts.train, scalings), valid=_scaled(parts.valid, scalings),
                   test=_scaled(parts.test, scalings))


def _scaled(data: GroupedDataset, scalings: Mapping[int, Scaling]) -> GroupedDataset:
    """The data with the numbers at some places scaled."""
    x, features = data.x.clone(), list(data.encoding.features)
    for place, scaling in scalings.items():
        x[:, place] = scaling.of(x[:, place])
        features[place] = features[place]._replace(scaling=scaling)
    return replace(data, x=x, encoding=data.encoding._replace(features=tuple(features)))
