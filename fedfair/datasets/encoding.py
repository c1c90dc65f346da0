"""How the columns of a table become the features of a model: a frozen description that `encoder.encode` applies."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from fedfair.datasets.reading import PLAIN, Reading


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

    With a `category`, it is 1 where the record has that category and 0 elsewhere. Otherwise it is a number, which is
    not yet scaled if there is no `scaling`.
    """

    column: str
    category: str | None = None
    scaling: Scaling | None = None

    @property
    def is_raw(self) -> bool:
        """Whether this is a number that is not yet scaled."""
        return self.category is None and self.scaling is None


class Encoding(NamedTuple):
    """The `features` in the order of the columns of `x`, and the features that were `left_out`.

    `reading` says how the cells of the table were read. The categories of the columns `listed` are a list that does not
    depend on the records: a value that is not on it is `OTHER`, if that is listed, or else none. All are empty without
    a table.
    """

    features: tuple[Feature, ...] = ()
    left_out: tuple[Feature, ...] = ()
    reading: Reading = PLAIN
    listed: tuple[str, ...] = ()

    def categories(self, column: str) -> tuple[str, ...]:
        """Return the categories of a one-hot column, also those left out, sorted."""
        return tuple(sorted(feature.category for feature in (*self.features, *self.left_out)
                            if feature.column == column and feature.category is not None))


OTHER = "other"
"""In a list of categories: stands for every value that is not on the list."""

NO_TABLE = Encoding()
"""The encoding of records that are no rows of a table."""
