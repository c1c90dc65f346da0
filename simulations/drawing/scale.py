"""From values to pixels: the range of an axis, its ticks, and the pixel of a value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Panel, Scale


class Range(NamedTuple):
    """From `low` to `high`, in powers of ten if `log`."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return how far along a value lies, from 0 to 1."""
        position = math.log10(value) if self.log else value
        return min(max((position - self.low) / (self.high - self.low), 0.0), 1.0)

    def ticks(self) -> dict[float, str]:
        """Return round values inside, with their words."""
        if not self.log:
            return {tick: f"{tick:g}" for tick in round_ticks(self.low, self.high)}
        decades_wide = self.high - self.low
        steps = (1, 1.5, 2, 3, 5, 7) if decades_wide < 0.8 else (1, 2, 5) if decades_wide < 2 else (1,)
        every = max(1, math.ceil((self.high - self.low) / 5))
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        values = [step * 10.0**decade for decade in decades if decade % every == 0 for step in steps]
        return {value: f"{value:g}" for value in values if self.low <= math.log10(value) <= self.high}


class Axis(NamedTuple):
    """A range laid over the pixels from `start` to `end`."""

    range: Range
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        return round(self.start + self.range.share(value) * (self.end - self.start), 1)


def spanned(estimates: Iterable[Estimate], scale: Scale) -> Range:
    """Return the range that holds all values and intervals, and a scale's ticks and guide, with a little room."""
    values = [value for estimate in estimates for value in estimate] + list(scale.ticks or ())
    if scale.guide is not None:
        values.append(scale.guide)
    kept = [value for value in values if math.isfinite(value) and (value > 0 or not scale.log)]
    if scale.log:
        kept = [math.log10(value) for value in kept]
    low, high = min(kept, default=0.0), max(kept, default=1.0)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return Range(low - room, high + room, scale.log)


def decades(values: Sequence[float]) -> Range:
    """Return the range of whole powers of ten that holds some values above 0."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Range(low, max(high, low + 1), log=True)


def ranges(panels: Sequence[Panel]) -> tuple[Range, Range]:
    """Return the ranges along both axes that hold all points of some panels."""
    points = [point for panel in panels for series in panel.series for point in series.points]
    x = spanned((point.x for point in points), panels[0].x)
    y = spanned((point.y for point in points), panels[0].y)
    if panels[0].y.ticks is not None:  # rows: half of one above and below
        y = Range(min(panels[0].y.ticks) - 0.5, max(panels[0].y.ticks) + 0.5)
    return x, y


def round_ticks(low: float, high: float) -> list[float]:
    """Return round values in a range, two to seven of them."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]
