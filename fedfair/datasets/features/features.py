"""Choose the features that a model is given, and scale their numbers.

Bins: a number becomes one feature for each of several intervals, of which exactly one is 1.

A model that is linear in bins is an additive scorecard. Ends of bins are in the units of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Feature, Scaling
from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.plugins.registry import unknown

_ROUNDING = 1e-12  # relative error of a mean in double precision, with a margin


class Range(NamedTuple):
    """The public range of a numeric column: known without looking at the records."""

    column: str
    low: float
    high: float


class Standard(NamedTuple):
    """The public mean and standard deviation of a numeric column."""

    column: str
    mean: float
    deviation: float


def leave_out(data: GroupedDataset, columns: Sequence[str]) -> GroupedDataset:
    """Leave out columns of the table with all their features, or single categories of one-hot columns ("sex=Male").

    Groups and labels stay. Raises `ValueError` for a column or category that no feature is made of, or if no feature
    would be left.
    """
    if not columns:
        return data
    features = [(column, "" if category is None else f"{column}={category}")
                for column, category in zip(data.columns, data.categories, strict=True)]
    for name in columns:
        if not any(name in feature for feature in features):
            raise unknown("column", name, _nearby(name, features) or ("none: the records are no table",))
    kept = [position for position, feature in enumerate(features) if not set(feature) & set(columns)]
    if not kept:
        raise ValueError(f"without is {', '.join(columns)}: no feature would be left to learn from")
    return _features(data, kept)


def _nearby(name: str, features: Sequence[tuple[str, str]]) -> list[str]:
    """Return what might have been meant: the categories of the column in `name`, or else the columns."""
    column = name.partition("=")[0]
    categories = [category for known, category in features if known == column and category]
    return categories or list(dict.fromkeys(known for known, _ in features))


def drop_first(data: GroupedDataset) -> GroupedDataset:
    """Leave out the first category of every one-hot column, which follows from the others and an intercept.

    `drop_first` of `pandas.get_dummies` and `drop="first"` of scikit-learn's `OneHotEncoder` do the same. Raises
    `ValueError` if no column is one-hot, or if a category of one is left out already.
    """
    one_hot = {feature.column for feature in data.encoding.features if feature.category is not None}
    first = {_whole(data, column, "drop_first is set")[0] for column in one_hot}
    if not first:
        raise ValueError("drop_first is set, but no column of the data is one-hot: leave it out")
    return _features(data, [position for position in range(len(data.columns)) if position not in first])


def to_ranges(data: GroupedDataset, ranges: Sequence[Range]) -> GroupedDataset:
    """Scale every numeric column from its public range to [0, 1]; values beyond the range go to its ends.

    A one-hot column with a range becomes one number, which its categories are. Unlike `standardise`, this uses no
    statistic of the records. Raises `ValueError` unless every numeric column has one range, finite and not empty, and
    every other column with a range holds numbers.
    """
    data = as_numbers(data, ranges)
    scalings = {column: Scaling(low, high - low, within=True) for column, low, high in ranges}
    numeric = {position: data.columns[position] for position in data.numeric}
    without = [column for column in numeric.values() if column not in scalings]
    if without:
        raise ValueError(f"ranges says nothing of {', '.join(without)}: give every numeric column its public range, or "
                         "leave ranges out, and all are standardised by the training records, which is not private")
    return _scaled(data, {position: scalings[column] for position, column in numeric.items()})


def as_numbers(data: GroupedDataset, ranges: Sequence[Range]) -> GroupedDataset:
    """Replace every one-hot column that has a range by one number, which its categories are.

    Raises `ValueError` for a range that is empty, not finite or given twice, and for a column that holds no numbers.
    """
    refuse_ranges(ranges)
    for column, _, _ in ranges:
        data = _as_number(data, column)
    return data


def refuse_ranges(ranges: Sequence[Range]) -> None:
    """Raise `ValueError` for a range that is empty, not finite or given twice.

    Args:
        ranges: Ranges of columns.
    """
    for column, low, high in ranges:
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"the range of {column} is {low:g} to {high:g}: give two numbers, the smaller first")
        if [named for named, _, _ in ranges].count(column) > 1:
            raise ValueError(f"ranges names {column} twice: leave one of them out")


def refuse_ends(column: str, edges: Sequence[float]) -> None:
    """Raise `ValueError` for ends between bins that are not finite or do not rise.

    Args:
        column: Column of numbers.
        edges: The ends.
    """
    if not all(map(math.isfinite, edges)) or not all(low < high for low, high in pairwise(edges)):
        raise ValueError(f"the ends between bins of {column} are {list(edges)}: give finite numbers that rise")


def _as_number(data: GroupedDataset, column: str) -> GroupedDataset:
    """Replace a one-hot column's features by one number, which its categories are, in the position of the first."""
    if column not in data.columns:
        raise unknown("column", column, data.columns or ("none: leave ranges out",))
    if data.columns.index(column) in data.numeric:
        return data
    first, *others = positions = _whole(data, column, f"ranges names {column}")
    categories = [str(data.encoding.features[position].category) for position in positions]
    try:
        numbers = torch.tensor([_finite(category) for category in categories], dtype=data.x.dtype)
    except ValueError:
        raise ValueError(f"ranges names {column}, which holds no numbers ({', '.join(categories)}): leave it out"
                         ) from None
    x, features = data.x.clone(), list(data.encoding.features)
    x[:, first], features[first] = x[:, positions] @ numbers, Feature(column)
    kept = [position for position in range(len(features)) if position not in others]
    encoding = data.encoding._replace(features=tuple(features[position] for position in kept))
    return replace(data, x=x[:, kept], encoding=encoding)


def _whole(data: GroupedDataset, column: str, reason: str) -> list[int]:
    """Return the positions of a one-hot column's features; raise `ValueError` if one of its categories is left out.

    The error begins with the `reason` why all categories are needed. It does not depend on the records.
    """
    positions = [position for position, name in enumerate(data.columns) if name == column]
    if any(feature.column == column for feature in data.encoding.left_out):
        raise ValueError(f"{reason}, but a category of {column} is left out already: take it out of without")
    return positions


def _finite(text: str) -> float:
    """Return the number that a text writes; raise `ValueError` for "nan", "inf" and other texts."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _features(data: GroupedDataset, kept: Sequence[int]) -> GroupedDataset:
    """Keep the features at the positions `kept`, in rising order."""
    features, left_out, places = data.encoding.features, data.encoding.left_out, set(kept)
    gone = tuple(feature for position, feature in enumerate(features) if position not in places)
    encoding = data.encoding._replace(features=tuple(features[position] for position in kept),
                                      left_out=(*left_out, *gone))
    return replace(data, x=data.x[:, list(kept)], encoding=encoding)


def standardise(parts: Parts) -> Parts:
    """Centre and scale the numeric columns by the mean and standard deviation of the training part.

    These statistics are not private; the result of a run says so.
    """
    columns = parts.train.numeric
    if not columns:
        return parts
    values = parts.train.x[:, list(columns)]
    means, deviations = values.mean(0).tolist(), values.std(0, correction=0).tolist()
    scalings = {position: Scaling(mean, deviation if _varies(mean, deviation) else 1.0)
                for position, mean, deviation in zip(columns, means, deviations, strict=True)}
    return replace(parts, train=_scaled(parts.train, scalings), valid=_scaled(parts.valid, scalings),
                   test=_scaled(parts.test, scalings))


def to_standards(data: GroupedDataset, standards: Sequence[Standard]) -> GroupedDataset:
    """Centre and scale every numeric column by its public mean and deviation.

    Raises `ValueError` unless every numeric column has a mean and a deviation, finite and above 0.
    """
    scalings = {column: Scaling(mean, deviation) for column, mean, deviation in standards}
    numeric = {position: data.columns[position] for position in data.numeric}
    without = [column for column in numeric.values() if column not in scalings]
    if without:
        raise ValueError(f"scalings says nothing of {', '.join(without)}: give every numeric column its public mean "
                         "and deviation, or take features binned or ranges, or preprocessing private")
    for column, scaling in scalings.items():
        if not (math.isfinite(scaling.centre) and 0 < scaling.width < math.inf):
            raise ValueError(f"the mean and deviation of {column} are {scaling.centre:g} and {scaling.width:g}: give "
                             "finite numbers, the second above 0")
    return _scaled(data, {position: scalings[column] for position, column in numeric.items()})


def _varies(mean: float, deviation: float) -> bool:
    """Return whether values with a mean and a deviation differ by more than the rounding of their sum."""
    return deviation > _ROUNDING * abs(mean)


def _scaled(data: GroupedDataset, scalings: Mapping[int, Scaling]) -> GroupedDataset:
    """Scale the numbers of the features at some positions."""
    x, features = data.x.clone(), list(data.encoding.features)
    for position, scaling in scalings.items():
        x[:, position] = scaling.of(x[:, position])
        features[position] = features[position]._replace(scaling=scaling)
    return replace(data, x=x, encoding=data.encoding._replace(features=tuple(features)))


_SKEWED = 1000.0  # of a range from 0: largest number beside which bins of equal width would hold nearly all records


def public_edges(known: Range, bins: int) -> tuple[float, ...]:
    """Return the ends between bins of a public range: of equal width, or from 1 on of equal ratio if it is very wide.

    Args:
        known: The range. One that starts at 0 or above and reaches over 1,000 times its start, or 1,000, is very wide,
            as of amounts of money.
        bins: Number of bins, at least 2.
    """
    _, low, high = known
    first = max(low, 1.0)
    if low >= 0 and high > _SKEWED * first:
        return tuple(torch.logspace(math.log10(first), math.log10(high), bins, dtype=torch.float64).tolist())
    return tuple(torch.linspace(low, high, bins + 1, dtype=torch.float64)[1:-1].tolist())


def quantiles(numbers: Tensor, bins: int) -> tuple[float, ...]:
    """Return the ends between bins that hold about as many of the `numbers` `[n]` each, without repetitions.

    Args:
        numbers: Numbers of a column; where they are those of records, this is not private.
        bins: Number of bins, at least 2.
    """
    rising = numbers.double().sort().values
    shares = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]
    above = rising[rising > rising[0]]  # the first bin holds the smallest number, however frequent it is
    found = rising[(shares * (len(numbers) - 1)).round().long()].clamp(min=float(above[0])) if len(above) else above
    return tuple(sorted(set(found.tolist())))


def binned(data: GroupedDataset, edges: Mapping[str, Sequence[float]]) -> GroupedDataset:
    """Return the records with a feature for each bin in the place of every number that is not yet scaled.

    Args:
        data: Records of a table.
        edges: Ends between bins by column, rising; the first and the last bin have no outer end.

    Raises:
        ValueError: If a column of numbers has no ends, or ends that do not rise.
    """
    if not data.numeric:
        return data
    raw = {data.columns[place] for place in data.numeric}
    missing = sorted(raw - edges.keys())
    if missing:
        raise ValueError(f"nothing is known of the bins of {', '.join(missing)}: give its public range by ranges, or "
                         f"the ends between bins by edges = {{ {missing[0]} = [0, 10, 100] }}")
    x, features = [], []
    for place, feature in enumerate(data.encoding.features):
        made = _bins(feature.column, edges[feature.column]) if feature.is_raw else [feature]
        if feature.is_raw and data.encoding.reading.keeps_missing:
            made.append(Feature(feature.column, missing=True))
        features += made
        x += [each.in_bin(data.x[:, place]) if feature.is_raw else data.x[:, place] for each in made]
    return replace(data, x=torch.stack(x, 1), encoding=data.encoding._replace(features=tuple(features)))


def _bins(column: str, edges: Sequence[float]) -> list[Feature]:
    """Return the features of a column's bins; raise `ValueError` for ends that are not finite or do not rise."""
    refuse_ends(column, edges)
    return [Feature(column, bin=ends) for ends in pairwise((None, *edges, None))]
