"""Bars with deviations, panels below each other, as one SVG file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulations.report.scale import Axis, Range
from simulations.report.svg import COLOURS, document, element, escaped, text

_BAR_ROW, _BAR_LEFT, _BAR_LENGTH, _BAR_RIGHT, _BAR_LETTER = 22, 150, 360, 130, 7
_BAR_STYLE = "text{font:13px sans-serif;fill:#888}.title{font-weight:bold}"


class Bar(NamedTuple):
    """A labelled value with its standard deviation, which is not a number for a single run."""

    label: str
    value: float
    deviation: float = math.nan
    colour: str = COLOURS[0]


def bar_chart(title: str, panels: Mapping[str, Sequence[Bar]], extent: Range | None = None) -> str:
    """Draw panels of bars by the panels' names: all over the range `extent`, or each over its own values and 0."""
    left = max(_BAR_LEFT, 8 + _BAR_LETTER * max(len(bar.label) for bars in panels.values() for bar in bars))
    parts, y = [], 8
    for name, bars in panels.items():
        parts.append(element("text", escaped(name), class_="title", x=8, y=y + 14))
        axis = Axis(extent or _extent(bars), left, left + _BAR_LENGTH)
        parts += [_bar(bar, y + _BAR_ROW * row, axis) for row, bar in enumerate(bars, 1)]
        y += _BAR_ROW * (len(bars) + 1) + 12
    return document(title, left + _BAR_LENGTH + _BAR_RIGHT, y, _BAR_STYLE, *parts)


def _extent(bars: Sequence[Bar]) -> Range:
    """Return the range that holds 0 and all bars with their deviations."""
    low = min(0.0, *(bar.value - _half(bar) for bar in bars))
    high = max(abs(bar.value) + _half(bar) for bar in bars)
    return Range(low, high if high > low else low + 1)


def _bar(bar: Bar, y: int, axis: Axis) -> str:
    """Draw one bar from 0, or from the lower end of a logarithmic axis, with its label, deviation and value."""
    zero, end, middle = axis.at(0.0) if not axis.range.log else axis.start, axis.at(bar.value), y + _BAR_ROW / 2 - 1
    low, high = (axis.at(bar.value + sign * _half(bar)) for sign in (-1, 1))
    digits = 0 if abs(bar.value) >= 10 else 4
    return (text(bar.label, 8, y + 15)
            + element("rect", x=min(zero, end), y=y, width=round(abs(end - zero), 1), height=_BAR_ROW - 3,
                      fill=bar.colour)
            + element("line", x1=low, x2=high, y1=middle, y2=middle, stroke=COLOURS[1], stroke_width=2)
            + text(f"{bar.value:,.{digits}f}", round(max(zero, high) + 6, 1), y + 15))


def _half(bar: Bar) -> float:
    """Return a bar's deviation, or 0 for a single run."""
    return 0.0 if math.isnan(bar.deviation) else bar.deviation
