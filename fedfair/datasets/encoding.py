"""How the columns of a table became the features of a model, so that new rows can become the same."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scaling(NamedTuple):
    """How a number becomes a feature: (number - `centre`) / `width`, and, where `within`, moved into [0, 1]."""

    centre: float
    width: float
    within: bool = False

    def of(self, numbers: Tensor) -> Tensor:
        """Features of the shape of the numbers."""
        scaled = (numbers - self.centre) / self.width
        return scaled.clamp(0, 1) if self.within else scaled


class Feature(NamedTuple):
    """What one column of `x` holds: a number of the table's `column`, not yet scaled without a `scaling`, or, with a
    `category`, 1 where the record has it there and 0 elsewhere.
    """

    column: str
    category: str | None = None
    scaling: Scaling | None = None

    @property
    def is_raw(self) -> bool:
        """Whether this is a number that is not yet scaled."""
        return self.category is None and self.scaling is None


class Encoding(NamedTuple):
    """The `features` in the order of the columns of `x`, and those that were `left_out`; all empty without a table.

    `decimal` are the columns of numbers that were text with a comma before decimals.
    """

    features: tuple[Feature, ...] = ()
    left_out: tuple[Feature, ...] = ()
    decimal: tuple[str, ...] = ()

    def categories(self, column: str) -> tuple[str, ...]:
        """All that a record could have in a one-hot column, left out or not, sorted."""
        return tuple(sorted(feature.category for feature in (*self.features, *self.left_out)
                            if feature.column == column and feature.category is not None))


NO_TABLE = Encoding()
"""Of records that were no rows of a table."""
