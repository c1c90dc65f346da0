"""How the columns of a table become the features of a model: a frozen description that `encoder.encode` applies.

Of features of bins and categories, each column has at most one that is not 0. A row of features is then known by one
small number a column, the place of the column's one among all features: a byte or two where the row has hundreds of
features. `places_of` finds them for a whole table at once, without a loop over features; `rows_of` writes features, to
the last bit those that `Feature.of` and `Bounding.of` make one by one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
    of features that are made of images (`fedfair.datasets.features.bounded`), "" for a table or for images as they are.
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


def places_of(values: Callable[[str], Tensor], encoding: Encoding) -> Tensor | None:
    """Return the place of each column's one among d features, d where it has none: `[n, columns]`.

    Args:
        values: Gives a column's numbers, NaN where one is missing, `[n]`; or places among `Encoding.categories`, -1 for
            a value that is none of them.
        encoding: How columns become features.

    Returns:
        Whole numbers of the smallest type; None if a feature is no bin or category, if bins overlap, if a column has
        features of both kinds, or if a feature is there twice.

    Examples:
        >>> ages = Encoding((Feature("age", bin=(None, 40.0)), Feature("age", bin=(40.0, None))))
        >>> places_of({"age": torch.tensor([25.0, 40.0, math.nan])}.__getitem__, ages)
        tensor([[0],
                [1],
                [2]], dtype=torch.uint8)
    """
    places: dict[str, dict[Feature, int]] = defaultdict(dict)
    for place, feature in enumerate(encoding.features):
        places[feature.column][feature] = place
    none, found = len(encoding.features), torch.empty(0)
    kind = torch.uint8 if none < 2**8 else torch.int16 if none < 2**15 else torch.int32
    if sum(map(len, places.values())) < none:
        return None
    for column, (name, own) in enumerate(places.items()):
        if encoding.categories(name):
            if any(feature.category is None for feature in own):
                return None
            table = _by_category(own, encoding.categories(name), none)
            placed = table.to(kind)[values(name).int()]
        else:
            bins = _by_bin(own, none)
            if bins is None:
                return None
            ends, of_piece, missing = bins
            placed = _looked_up(values(name), ends, of_piece.to(kind), missing)
        found = found if column else torch.empty(len(placed), len(places), dtype=kind)
        found[:, column] = placed  # each at once: to stack all of them would take twice the memory
    return found


def rows_of(places: Tensor, features: int, bounding: Bounding | None) -> Tensor:
    """Return features in double precision, `[n, d]`, or `[n, d + 1]` where they are bounded.

    Args:
        places: What `places_of` gives for some records, `[n, columns]`.
        features: Their number d.
        bounding: How rows become vectors of norm at most 1, if they do.
    """
    if bounding is None:
        return ones_of(places, features, torch.float64)[:, :features].contiguous()
    places = places.long()
    made = torch.zeros(len(places), features + 1, dtype=torch.float64)  # the last takes the ones that are none
    each = value_of_one(number_of_ones(places, features), bounding)
    made.scatter_(1, places, each.unsqueeze(1).expand_as(places))
    made[:, features] = bounding.last
    return made


def ones_of(places: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    """Return 1 in each of some records' places, 1 behind them, and 0 elsewhere: `[n, d + 1]`.

    Args:
        places: What `places_of` gives for the records, `[n, columns]`.
        features: Number d of features.
        dtype: Type of the numbers.
    """
    made = torch.zeros(len(places), features + 1, dtype=dtype).scatter_(1, places.long(), 1.0)
    made[:, features] = 1.0
    return made


def number_of_ones(places: Tensor, features: int) -> Tensor:
    """Return how many ones each of some records has, `[n]`, as small integers.

    They are counted column by column: a sum over whole rows would first write eight bytes for every cell.

    Args:
        places: What `places_of` gives for the records, `[n, columns]`.
        features: Number of features.

    Examples:
        >>> number_of_ones(torch.tensor([[0, 2], [3, 3]], dtype=torch.uint8), 3)
        tensor([2, 0], dtype=torch.int32)
    """
    number = torch.zeros(len(places), dtype=torch.int32)
    for column in places.unbind(1):
        number += column < features
    return number


def value_of_one(ones: Tensor, bounding: Bounding) -> Tensor:
    """Return what each one of a row becomes that has so many `ones`, `[n]`, in double precision, `[n]`.

    Rounded as `Bounding.of` does. (Torch's roots of many numbers at once are not, on some processors.)
    """
    scale, most = math.hypot(bounding.longest, bounding.constant), int(ones.max()) if ones.numel() else 0
    lengths = [max(math.sqrt(number), bounding.longest) for number in range(most + 1)]
    return torch.tensor([1 / length * bounding.longest / scale for length in lengths], dtype=torch.float64)[ones.long()]


def _by_category(own: Mapping[Feature, int], known: Sequence[str], none: int) -> Tensor:
    """Return the place of each known category's feature, and at the end, where -1 looks, none: `[known + 1]`."""
    of = {feature.category: place for feature, place in own.items()}
    return torch.tensor([of.get(name, none) for name in (*known, None)])


def _by_bin(own: Mapping[Feature, int], none: int) -> tuple[Tensor, Tensor, int] | None:
    """Return all ends of bins, the place of each piece between them, and that of a missing number.

    None if a feature is no bin, or if two bins share a number.
    """
    bins = {feature.bin: place for feature, place in own.items() if feature.bin is not None}
    missing = [place for feature, place in own.items() if feature.missing]
    if len(bins) + len(missing) < len(own):
        return None
    ends = sorted({end for bin_ in bins for end in bin_ if end is not None})
    of_piece = [none] * (len(ends) + 1)
    for (low, high), place in bins.items():
        first = 0 if low is None else ends.index(low) + 1
        last = len(ends) if high is None else ends.index(high)
        for piece in range(first, last + 1):
            if of_piece[piece] != none:
                return None
            of_piece[piece] = place
    return torch.tensor(ends, dtype=torch.float64), torch.tensor(of_piece), missing[0] if missing else none


def _looked_up(numbers: Tensor, ends: Tensor, of_piece: Tensor, missing: int) -> Tensor:
    """Return the place of each number's piece, of the pieces' type; an end belongs to the piece above it."""
    pieces = torch.bucketize(numbers, ends, right=True, out_int32=True)
    return torch.where(numbers.isnan(), missing, of_piece[pieces])
