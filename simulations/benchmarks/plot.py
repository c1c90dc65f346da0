"""Figures of a benchmark as an SVG picture: bars, or lines over logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from simulations.curve_plot import COLOURS

_STYLE = "<style>text{font:12px sans-serif;fill:#888}line,polyline{stroke:#888;fill:none}</style>"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BAR = 460, 260, 70, 44, 22
_NAMES = 230  # pixels for the names of bars

Points = Sequence[tuple[float, float]]


def bars(title: str, values: Mapping[str, float]) -> str:
    """One bar for each value, as long as its logarithm, with the value behind it."""
    low = 10 ** math.floor(math.log10(min(values.values())))
    scale = _WIDTH / (math.log10(max(values.values()) / low) or 1)
    drawn = []
    for place, (name, value) in enumerate(values.items()):
        y, length = _TOP + place * _BAR, scale * math.log10(value / low)
        drawn.append(f'<text x="8" y="{y + 14}">{escape(name)}</text><rect x="{_NAMES}" y="{y + 2}" '
                     f'width="{length:.0f}" height="{_BAR - 5}" fill="{COLOURS[0]}"/>'
                     f'<text x="{_NAMES + length + 6:.0f}" y="{y + 14}">{_short(value)}</text>')
    return _picture(title, drawn, _NAMES + _WIDTH + 80, _TOP + len(values) * _BAR + 10)


def lines(title: str, x: str, series: Mapping[str, Points]) -> str:
    """A line for each series of points (x, y), both above 0; a tick for every power of ten."""
    points = [point for line in series.values() for point in line]
    across, up = (_powers([point[axis] for point in points]) for axis in (0, 1))

    def at(point: tuple[float, float]) -> tuple[float, float]:
        """Where a point lies in the picture, in pixels."""
        return (_LEFT + _WIDTH * _share(point[0], across), _TOP + _HEIGHT * (1 - _share(point[1], up)))

    drawn = [f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{_TOP + _HEIGHT + 38}" text-anchor="middle">{escape(x)}</text>']
    for power in range(across[0], across[1] + 1):
        left, _ = at((10.0**power, 10.0 ** up[0]))
        drawn.append(f'<line x1="{left:.0f}" x2="{left:.0f}" y1="{_TOP + _HEIGHT}" y2="{_TOP + _HEIGHT + 5}"/>'
                     f'<text x="{left:.0f}" y="{_TOP + _HEIGHT + 19}" text-anchor="middle">{10**power:,}</text>')
    for power in range(up[0], up[1] + 1):
        _, y = at((10.0 ** across[0], 10.0**power))
        drawn.append(f'<line x1="{_LEFT - 5}" x2="{_LEFT}" y1="{y:.0f}" y2="{y:.0f}"/><text x="{_LEFT - 8}" '
                     f'y="{y + 4:.0f}" text-anchor="end">{10.0**power:,g}</text>')
    for place, (name, line) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{left:.1f},{y:.1f}" for left, y in map(at, line))
        drawn.append(f'<polyline points="{path}" style="stroke:{colour};stroke-width:2"/><circle cx="{_LEFT + 10}" '
                     f'cy="{_TOP + 8 + 18 * place}" r="5" fill="{colour}"/><text x="{_LEFT + 22}" '
                     f'y="{_TOP + 12 + 18 * place}">{escape(name)}</text>')
    return _picture(title, drawn, _LEFT + _WIDTH + 30, _TOP + _HEIGHT + 50)


def save_plot(picture: str, out: Path | None) -> None:
    """Write the picture beside the JSON file `out` of a benchmark, if there is one."""
    if out is not None:
        out.with_suffix(".svg").write_text(picture)


def _short(value: float) -> str:
    """A value as a person reads it: three digits, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _powers(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten between which the values lie, at least one apart."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _share(value: float, powers: tuple[int, int]) -> float:
    """Where a value lies between two powers of ten, from 0 to 1."""
    return (math.log10(value) - powers[0]) / (powers[1] - powers[0])


def _picture(title: str, drawn: Sequence[str], width: int, height: int) -> str:
    """The whole drawing."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
            f'<title>{escape(title)}</title>{_STYLE}<text x="8" y="20" style="font-weight:bold">{escape(title)}</text>'
            f'{"".join(drawn)}</svg>\n')
