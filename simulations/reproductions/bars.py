"""Bars with deviations as one SVG drawing, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _ROW, _LEFT, _LENGTH = 640, 22, 150, 360
_STYLE = "<style>text{font:13px sans-serif;fill:#888}.title{font-weight:bold}</style>"


class Bar(NamedTuple):
    """A labelled value with its standard deviation; not a number means none."""

    label: str
    value: float
    deviation: float


def picture(title: str, panels: Mapping[str, Sequence[Bar]]) -> str:
    """Panels below each other, each with a scale of its own; readable on light and on dark ground."""
    lines, y = [], 8
    for name, bars in panels.items():
        lines.append(f'<text class="title" x="8" y="{y + 14}">{escape(name)}</text>')
        y += _ROW
        reach = [abs(bar.value) + _number(bar.deviation) for bar in bars]
        low = min(0.0, *(bar.value - _number(bar.deviation) for bar in bars))
        scale = _LENGTH / ((max(reach) - low) or 1.0)
        for bar in bars:
            lines.append(_bar(bar, y, _LEFT - low * scale, scale))
            y += _ROW
        y += 12
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img">'
            f'<title>{escape(title)}</title>{_STYLE}{"".join(lines)}</svg>\n')


def _bar(bar: Bar, y: int, zero: float, scale: float) -> str:
    """One bar from the line of zero, its deviation, its label and its value."""
    end, half, middle = zero + bar.value * scale, _number(bar.deviation) * scale, y + _ROW / 2 - 1
    digits = 0 if abs(bar.value) >= 10 else 4
    return (f'<text x="8" y="{y + 15}">{escape(bar.label)}</text>'
            f'<rect x="{min(zero, end):.1f}" y="{y}" width="{abs(end - zero):.1f}" height="{_ROW - 3}" fill="#0072b2"/>'
            f'<line x1="{end - half:.1f}" x2="{end + half:.1f}" y1="{middle}" y2="{middle}" stroke="#d55e00" '
            f'stroke-width="2"/><text x="{max(zero, end + half) + 6:.1f}" y="{y + 15}">{bar.value:.{digits}f}</text>')


def _number(deviation: float) -> float:
    """A deviation, 0 for a single seed's."""
    return 0.0 if math.isnan(deviation) else deviation
