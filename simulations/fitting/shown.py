"""A figure as tables show it: with its interval, or as one that cannot be told."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

_WIDE = 0.5  # an interval of a rate that is wider tells nothing


class Shown(NamedTuple):
    """A figure with its interval, as tables show it."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether there is a value, and the interval says anything."""
        return self.value == self.value and (self.high > 1 or self.high - self.low <= _WIDE)

    @property
    def text(self) -> str:
        """The figure in words: a rate with three decimals, a number of records without."""
        if self.value != self.value:
            return "unknown"
        if not self.told:
            return "cannot be told"
        return f"{self.value:,.0f}" if self.high > 1 else f"{self.value:.3f}"

    @property
    def interval(self) -> str:
        """The interval in words; "" if there is nothing to say."""
        if not self.told:
            return ""
        return f"{self.low:,.0f} to {self.high:,.0f}" if self.high > 1 else f"{self.low:.3f} to {self.high:.3f}"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain values by column."""
    return frame.to_dict("records")  # type: ignore[return-value]


NOTHING = Shown(float("nan"), float("nan"), float("nan"))
