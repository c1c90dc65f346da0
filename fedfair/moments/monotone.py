"""Scores that rise or fall with a number, as a lender must be able to promise of an income.

The weights of a column's bins are replaced by the nearest ones that go one way, where bins count by their records:
isotonic regression (Barlow et al. 1972), on the difference between the favourable class and the other one. It needs no
record, so it costs nothing; where scores go that way in truth it takes noise out, for no weight is then farther from
the true ones than before, all together. What a missing number decides stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.moments.sums import CLASSES

Direction = Literal["up", "down"]
"""Whether the favourable class gets more probable as the number rises, or less."""


def directions_of(asked: Sequence[str]) -> dict[str, Direction]:
    """Return which way the score goes by column.

    Args:
        asked: A text for each column, for example "income=up".

    Raises:
        ValueError: If one is something else, or a column is named twice.

    Examples:
        >>> directions_of(["income=up", "years in debt=down"])
        {'income': 'up', 'years in debt': 'down'}
    """
    found: dict[str, Direction] = {}
    for text in asked:
        column, _, way = text.rpartition("=")
        if not column or way not in ("up", "down") or column in found:
            what = "is named twice" if column in found else "says no direction"
            raise ValueError(f"monotone is {', '.join(map(repr, asked))}, of which {text!r} {what}: write COLUMN=up or "
                             "COLUMN=down, each column once")
        found[column] = "up" if way == "up" else "down"
    return found


def refuse_unordered(asked: Mapping[str, Direction], encoding: Encoding, classes: int) -> None:
    """Raise `ValueError` for a column that has no order, or where there are not two classes.

    Args:
        asked: Directions by column.
        encoding: How columns became features.
        classes: Number of classes.
    """
    if asked and classes != CLASSES:
        raise ValueError(f"monotone is asked of {', '.join(asked)}, but there are {classes} classes, and a score goes "
                         "up or down for one of 2: leave monotone out")
    for column in asked:
        if not any(_is_ordered(feature) for feature in encoding.features if feature.column == column):
            known = dict.fromkeys(feature.column for feature in encoding.features if _is_ordered(feature))
            raise ValueError(f"monotone is asked of {column!r}, which is no number among the features: take one of "
                             f"{', '.join(known) or 'none, since there is none'}, or leave it out")


def made_monotone(weights: Tensor, asked: Mapping[str, Direction], encoding: Encoding, records: Tensor,
                  favourable: int) -> Tensor:
    """Return weights whose scores go the ways that are asked, in every writing of numbers.

    The two weights of a bin become opposite ones. That changes no decision, and rounding keeps the order of opposite
    weights: of others their difference would fall by a last digit where the nearest ones are equal.

    Args:
        weights: Weights of classifiers of two classes, `[points, d, 2]`.
        asked: Directions by column.
        encoding: How columns became the first d - 1 features.
        records: About how many records have each feature, `[d - 1]`.
        favourable: Number of the class whose score goes up.
    """
    made = weights.clone()
    for column, way in asked.items():
        places = [place for place, feature in enumerate(encoding.features)
                  if feature.column == column and _is_ordered(feature)]
        for point in made:
            apart = point[places, favourable] - point[places, 1 - favourable]
            half = _nearest(apart, records[places].clamp(min=1.0), way) / 2
            point[places, favourable], point[places, 1 - favourable] = half, -half
    return made


def _is_ordered(feature: Feature) -> bool:
    """Return whether a feature is a bin of a number, or the number."""
    return feature.bin is not None or (feature.category is None and not feature.missing)


def _nearest(values: Tensor, counts: Tensor, way: Direction) -> Tensor:
    """Return the nearest values that go one way; of the single weight of a number, that with the sign of it."""
    from scipy.optimize import isotonic_regression  # here, since it takes time to import

    if len(values) == 1:
        return values.clamp(min=0.0) if way == "up" else values.clamp(max=0.0)
    found = isotonic_regression(values.numpy(), weights=counts.numpy(), increasing=way == "up").x
    return torch.from_numpy(found.copy()).to(values)  # falling ones are a view with a negative stride
