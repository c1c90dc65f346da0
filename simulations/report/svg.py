"""Panels as SVG for the page: colours are the page's, so that they follow light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from simulations.report.figure import Figure, Panel, Point, Series, Style, ends
from simulations.report.scale import Range, ranges

WIDTH, HEIGHT, ROW = 340, 230, 26
_MARKS = 6  # on a line
_TOP, _RIGHT, _BOTTOM, _LETTER = 10, 12, 44, 6.4


class Frame(NamedTuple):
    """Where a panel's values lie, in pixels of a picture `WIDTH` wide and `height` high."""

    x: Range
    y: Range
    left: float
    height: float

    def across(self, value: float) -> float:
        """The pixel of a value along x."""
        return round(self.left + self.x.share(value) * (WIDTH - _RIGHT - self.left), 1)

    def up(self, value: float) -> float:
        """The pixel of a value along y."""
        bottom = self.height - _BOTTOM
        return round(bottom - self.y.share(value) * (bottom - _TOP), 1)


def drawn(figure: Figure, chapter: str) -> list[str]:
    """Each panel as an SVG element; a figure is drawn once in a chapter."""
    shared = ranges(figure.panels)
    pictures = []
    for number, panel in enumerate(figure.panels):
        x, y = ranges([panel])
        x, y = shared[0] if figure.same == "x" else x, shared[1] if figure.same == "y" else y
        pictures.append(picture(panel, x, y, f"{chapter}-{figure.name}-{number}"))
    return pictures


def picture(panel: Panel, x: Range, y: Range, identity: str) -> str:
    """One panel; `identity` is unique on the page."""
    names = panel.y.ticks or {}
    longest = max(map(len, (names or y.ticks()).values()), default=0)
    height = _TOP + _BOTTOM + ROW * len(names) if names else HEIGHT
    frame = Frame(x, y, _LETTER * longest + (12 if names else 28), height)
    parts = [*_grid(panel, frame), *(mark for series in panel.series for mark in _series(series, panel, frame))]
    return (f'<svg viewBox="0 0 {WIDTH} {frame.height}" role="img" aria-labelledby="{identity}-t {identity}-d">'
            f'<title id="{identity}-t">{escape(panel.title)}</title>'
            f'<desc id="{identity}-d">{escape(panel.words())}</desc>{"".join(parts)}</svg>')


def swatch(place: int) -> str:
    """The line and marker of a series, for a legend."""
    style = Style.of(place)
    return (f'<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true"><g class="c{style.colour}">'
            f'<path class="line" d="M1,7H33"{_dash(style)}/>{_marker(style.marker, 17, 7)}</g></svg>')


def _grid(panel: Panel, frame: Frame) -> list[str]:
    """Lines, ticks and labels."""
    bottom, right = frame.height - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for value, text in (panel.x.ticks or frame.x.ticks()).items():
        at = frame.across(value)
        parts.append(f'<path class="grid" d="M{at},{_TOP}V{bottom}"/>'
                     f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>')
    for value, text in (panel.y.ticks or frame.y.ticks()).items():
        at = frame.up(value)
        parts.append(f'<path class="grid" d="M{frame.left},{at}H{right}"/>'
                     f'<text x="{frame.left - 6}" y="{at + 4}" text-anchor="end">{escape(text)}</text>')
    middle = (frame.left + right) / 2
    parts.append(f'<path class="axis" d="M{frame.left},{_TOP}V{bottom}H{right}"/>'
                 f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(panel.x.label)}</text>')
    if panel.y.label:
        height = (_TOP + bottom) / 2
        parts.append(f'<text transform="translate(12 {height}) rotate(-90)" text-anchor="middle">'
                     f'{escape(panel.y.label)}</text>')
    return parts


def _series(series: Series, panel: Panel, frame: Frame) -> list[str]:
    """A line with its band, or marks with their intervals."""
    style = Style.of(series.place)
    points = [p for p in series.points if math.isfinite(p.x.mean) and math.isfinite(p.y.mean)]
    parts = [f'<g class="series c{style.colour}{" hollow" if series.hollow else ""}" '
             f'data-series="{escape(series.name)}">']
    if series.joined and points:
        parts += [_band(points, frame), f'<path class="line" d="M{_path(points, frame)}"{_dash(style)}/>']
    marks = _MARKS if series.joined and len(points) > _MARKS else len(points)
    places = {round(place * (len(points) - 1) / max(marks - 1, 1)) for place in range(marks)}
    return [*parts, *(_mark(points[place], series, panel, frame, style) for place in sorted(places)), "</g>"]


def _mark(point: Point, series: Series, panel: Panel, frame: Frame, style: Style) -> str:
    """A marker, its intervals, its label, and what is said when it is pointed at."""
    x, y = frame.across(point.x.mean), frame.up(point.y.mean)
    bars = "" if series.joined else _bars(point, frame)
    label = f'<text class="label" x="{x + 8}" y="{y - 7}">{escape(point.label)}</text>' if point.label else ""
    return (f'<g data-tip="{escape(_tip(point, series, panel))}">{bars}{_marker(style.marker, x, y)}'
            f'<circle class="hit" cx="{x}" cy="{y}" r="11"/>{label}</g>')


def _tip(point: Point, series: Series, panel: Panel) -> str:
    """A point in words."""
    low, high = ends(point)
    values = [f"{scale.label} {estimate.mean:.4g}" for scale, estimate in ((panel.x, point.x), (panel.y, point.y))
              if scale.ticks is None]
    interval = "" if math.isnan(low) else f" ({low:.3f} to {high:.3f})"
    label = f", epsilon {point.label}" if point.label else ""
    return f"{series.name}: {', '.join(values)}{interval}{label}"


def _bars(point: Point, frame: Frame) -> str:
    """The intervals of a mark."""
    x, y = frame.across(point.x.mean), frame.up(point.y.mean)
    bars = ""
    if not math.isnan(point.x.low):
        bars += f'<path class="bar" d="M{frame.across(point.x.low)},{y}H{frame.across(point.x.high)}"/>'
    if not math.isnan(point.y.low):
        bars += f'<path class="bar" d="M{x},{frame.up(point.y.low)}V{frame.up(point.y.high)}"/>'
    return bars


def _band(points: Sequence[Point], frame: Frame) -> str:
    """The area between the ends of the intervals of a line's points."""
    known = [point for point in points if not math.isnan(point.y.low)]
    if len(known) < 2:
        return ""
    upper = [f"{frame.across(p.x.mean)},{frame.up(p.y.high)}" for p in known]
    lower = [f"{frame.across(p.x.mean)},{frame.up(p.y.low)}" for p in reversed(known)]
    return f'<path class="band" d="M{" L".join([*upper, *lower])}Z"/>'


def _path(points: Sequence[Point], frame: Frame) -> str:
    """A line through all points."""
    return " L".join(f"{frame.across(point.x.mean)},{frame.up(point.y.mean)}" for point in points)


def _dash(style: Style) -> str:
    """The dash pattern of a line."""
    return f' stroke-dasharray="{" ".join(map(str, style.dash))}"' if style.dash else ""


_SHAPES = {"square": "M-4,-4H4V4H-4Z", "triangle": "M0,-5L5,4H-5Z", "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
           "down": "M0,5L5,-4H-5Z", "plus": "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z",
           "cross": "M-4.6,-2.6L-2.6,-4.6L0,-2L2.6,-4.6L4.6,-2.6L2,0L4.6,2.6L2.6,4.6L0,2L-2.6,4.6L-4.6,2.6L-2,0Z",
           "star": "M0,-6L1.6,-1.9L6,-1.9L2.5,0.8L3.7,5L0,2.4L-3.7,5L-2.5,0.8L-6,-1.9L-1.6,-1.9Z"}


def _marker(shape: str, x: float, y: float) -> str:
    """A marker around a place."""
    if shape == "circle":
        return f'<circle class="marker" cx="{x}" cy="{y}" r="4.2"/>'
    return f'<path class="marker" transform="translate({x} {y})" d="{_SHAPES[shape]}"/>'
