"""How the columns of a table become the features of a model: a frozen description that `encoder.encode` applies."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.columns.convention import PLAIN, Reading


class Scaling(NamedTuple):
    """How a number becomes a feature: (number - `centre`) / `width`, clamped to [0, 1] if `within`."""

    centre: float
    width: float
    within: bool = False

    def of(self, numbers: Tensor) -> Tensor:
        """Scale numbers to features of the same shape."""
        scaled = (numbers - self.centre) / self.width
        return scaled.clamp(0, 1) if self.within else scaled


class Feature(NamedTuple):
    """What one column of `x` is made of: the table's `column`.

    With a `category`, it is 1 where the record has that category and 0 elsewhere; with a `bin`, it is 1 where the
    number is at least the first end and below the second, of which one may be None. A feature for what is `missing` is
    1 where there is no number, and 0 elsewhere. Otherwise it is a number, which is not yet scaled if there is no
    `scaling`.
    """

    column: str
    category: str | None = None
    scaling: Scaling | None = None
    bin: tuple[float | None, float | None] | None = None
    missing: bool = False

    def in_bin(self, numbers: Tensor) -> Tensor:
        """Return 1 where a number is in the bin, or missing if that is wanted, else 0, in the numbers' shape and type.

        A number that is missing, NaN, is in no bin.
        """
        if self.missing:
            return numbers.isnan().to(numbers.dtype)
        assert self.bin is not None
        low, high = self.bin
        within = ~numbers.isnan()
        within &= numbers >= low if low is not None else within
        within &= numbers < high if high is not None else within
        return within.to(numbers.dtype)

    def of(self, values: Tensor) -> Tensor:
        """Return the feature, `[n]`, of its column's numbers, or of 1 for its category: scaled or in a bin if it is."""
        if self.bin is not None or self.missing:
            return self.in_bin(values)
        return self.scaling.of(values) if self.scaling else values

    @property
    def is_raw(self) -> bool:
        """Whether this is a number that is not yet scaled."""
        return self.category is None and self.scaling is None and self.bin is None and not self.missing


class Bounding(NamedTuple):
    """How a row of features z becomes phi, of norm at most 1 whatever the row holds.

    phi = (z min(1, `longest` / |z|), `constant`) / sqrt(longest^2 + constant^2): its last coordinate is the same for
    every record, and public.
    """

    longest: float
    constant: float

    @property
    def last(self) -> float:
        """The last coordinate of every phi."""
        return self.constant / math.hypot(self.longest, self.constant)

    def of(self, features: Tensor) -> Tensor:
        """Return phi, `[n, d + 1]`, of rows `[n, d]`."""
        norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        shortened = features * (self.longest / norms.clamp(min=self.longest))
        constant = features.new_full((len(features), 1), self.constant)
        return torch.cat([shortened, constant], 1) / math.hypot(self.longest, self.constant)


class Encoding(NamedTuple):
    """The `features` in the order of the columns of `x`, and the features that were `left_out`.

    `reading` says how the cells of the table were read. The categories of the columns `listed` are a list that does not
    depend on the records: a value that is not on it is `OTHER`, if that is listed, or else none. All are empty without
    a table. With a `bounding`, `x` has one more column than there are features, which is constant. `images` is the kind
    of features that are made of images (`fedfair.datasets.bounded`), "" for a table or for images as they are.
    """

    features: tuple[Feature, ...] = ()
    left_out: tuple[Feature, ...] = ()
    reading: Reading = PLAIN
    listed: tuple[str, ...] = ()
    bounding: Bounding | None = None
    images: str = ""

    def categories(self, column: str) -> tuple[str, ...]:
        """Return the categories of a one-hot column, also those left out, sorted."""
        return tuple(sorted(feature.category for feature in (*self.features, *self.left_out)
                            if feature.column == column and feature.category is not None))


OTHER = "other"
"""In a list of categories: stands for every value that is not on the list."""

NO_TABLE = Encoding()
"""The encoding of records that are no rows of a table."""
