"""Bins: a number becomes one feature for each of several intervals, of which exactly one is 1.

A model that is linear in bins is an additive scorecard. Ends of bins are in the units of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from fedfair.datasets.encoding import Feature
from fedfair.datasets.features import Range
from fedfair.datasets.grouped import GroupedDataset

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
    if not all(map(math.isfinite, edges)) or not all(low < high for low, high in pairwise(edges)):
        raise ValueError(f"the ends between bins of {column} are {list(edges)}: give finite numbers that rise")
    return [Feature(column, bin=ends) for ends in pairwise((None, *edges, None))]
