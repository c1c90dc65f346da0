"""Drawings as SVG: the one place that writes tags, escapes text and makes a file of a drawing.

Panels of a figure stand one by one in the page's colours, which follow light, dark and print, or in one file. Bars with
intervals are panels below each other, as one file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import COLOURS, Axis, Figure, Panel, Point, Range, Scale, Series, Style, ends, ranges

WIDTH, HEIGHT, ROW = 340, 230, 26
_MARKS = 6  # on a line
_ACROSS = 3  # panels beside each other in a file
_TOP, _RIGHT, _BOTTOM, _LETTER, _GAP = 10, 12, 44, 6.4, 24
_STYLE = ("text{font:12px sans-serif;fill:#888;stroke:none}.title{font-weight:bold}"
          ".grid{stroke:#888;stroke-opacity:.25}.axis,.guide{stroke:#888;fill:none}.guide{stroke-dasharray:2}.line,.bar{fill:none;stroke-width:1.8}"
          ".band{stroke:none;fill-opacity:.16}.hit{fill:none;stroke:none}.hollow .marker{fill:none}.faint{opacity:.35}"
          + "".join(f".c{number}{{stroke:{colour};fill:{colour}}}" for number, colour in enumerate(COLOURS)))


def element(tag: str, *inside: str, **attributes: object) -> str:
    """Write an element; `inside` is SVG already. `text_anchor` stands for text-anchor, `class_` for class."""
    opening = tag
    for name, value in attributes.items():
        opening += f' {name.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
    return f"<{opening}>{''.join(inside)}</{tag}>" if inside else f"<{opening}/>"


def escaped(words: str) -> str:
    """Escape words for a page or a drawing, which may hold no control characters."""
    return escape(visible(words))


def text(words: str, x: float, y: float, **attributes: object) -> str:
    """Write words that start, or are anchored, at a point."""
    return element("text", escaped(words), x=x, y=y, **attributes)


def path(d: str, class_: str, **attributes: object) -> str:
    """Write a path of a class."""
    return element("path", class_=class_, d=d, **attributes)


def document(title: str, width: float, height: float, style: str, *inside: str) -> str:
    """Write a file that needs nothing else, readable on light and on dark ground if `style` draws in grey."""
    return element("svg", element("title", escaped(title)), element("style", style), *inside,
                   xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img") + "\n"


class Frame(NamedTuple):
    """Both axes of a panel, over the pixels of a drawing `WIDTH` wide and `height` high."""

    x: Axis
    y: Axis
    height: float


def drawn(figure: Figure, chapter: str) -> list[str]:
    """Draw each panel as an SVG element; a figure is drawn once in a chapter."""
    parts = []
    for number, (panel, frame) in enumerate(zip(figure.panels, _frames(figure), strict=True)):
        name = f"{chapter}-{figure.name}-{number}"  # unique on the page
        parts.append(element("svg", element("title", escaped(panel.title), id=f"{name}-t"),
                             element("desc", escaped(panel.words()), id=f"{name}-d"), _panel(panel, frame),
                             viewBox=f"0 0 {WIDTH} {frame.height}", role="img", aria_labelledby=f"{name}-t {name}-d"))
    return parts


def drawing(figure: Figure) -> str:
    """Draw a figure as one file: its title, a legend, and the panels, three beside each other."""
    frames = _frames(figure)
    width, height = (WIDTH + _GAP) * min(len(frames), _ACROSS), max(frame.height for frame in frames)
    parts, x, y = [text(figure.title, 8, 20, class_="title")], 8.0, 30
    for name, place in figure.legend().items():
        length = SWATCH + 6 + _LETTER * len(name) + _GAP
        if x > 8 and x + length > width:
            x, y = 8.0, y + 20
        parts.append(element("g", sample(place), text(name, SWATCH + 6, 11), transform=f"translate({x:g} {y})"))
        x += length
    for number, (panel, frame) in enumerate(zip(figure.panels, frames, strict=True)):
        down, across = divmod(number, _ACROSS)
        parts.append(element("g", _panel(panel, frame),
                             transform=f"translate({(WIDTH + _GAP) * across} {y + 24 + height * down})"))
    return document(figure.title, width, y + 24 + height * math.ceil(len(frames) / _ACROSS), _STYLE, *parts)


def _frames(figure: Figure) -> list[Frame]:
    """Return the axes of every panel; the panels share the range that the figure says."""
    shared = ranges(figure.panels)
    frames = []
    for panel in figure.panels:
        x, y = ranges([panel])
        frames.append(_frame(panel, shared[0] if figure.same == "x" else x, shared[1] if figure.same == "y" else y))
    return frames


def _frame(panel: Panel, x: Range, y: Range) -> Frame:
    """Return the axes of a panel, with room for the words on its left."""
    names = panel.y.ticks or {}
    longest = max(map(len, (names or y.ticks()).values()), default=0)
    height = _TOP + _BOTTOM + ROW * len(names) if names else HEIGHT
    left = _LETTER * longest + (12 if names else 28)
    return Frame(Axis(x, left, WIDTH - _RIGHT), Axis(y, height - _BOTTOM, _TOP), height)


def _panel(panel: Panel, frame: Frame) -> str:
    """Draw one panel."""
    return "".join([*_grid(panel, frame), *(_series(series, panel, frame) for series in panel.series)])


def _grid(panel: Panel, frame: Frame) -> list[str]:
    """Draw lines, ticks and labels."""
    (_, left, right), (_, bottom, top) = frame.x, frame.y
    parts = []
    for value, words in (panel.x.ticks or frame.x.range.ticks()).items():
        at = frame.x.at(value)
        parts += [path(f"M{at},{top}V{bottom}", "grid"), text(words, at, bottom + 16, text_anchor="middle")]
    for value, words in (panel.y.ticks or frame.y.range.ticks()).items():
        at = frame.y.at(value)
        parts += [path(f"M{left},{at}H{right}", "grid"), text(words, left - 6, at + 4, text_anchor="end")]
    parts += [path(f"M{left},{top}V{bottom}H{right}", "axis"),
              text(panel.x.label, (left + right) / 2, bottom + 36, text_anchor="middle")]
    if panel.x.guide is not None:
        parts.append(path(f"M{frame.x.at(panel.x.guide)},{top}V{bottom}", "guide"))
    if panel.y.guide is not None:
        parts.append(path(f"M{left},{frame.y.at(panel.y.guide)}H{right}", "guide"))
    if panel.y.label:
        parts.append(element("text", escaped(panel.y.label), text_anchor="middle",
                             transform=f"translate(12 {(top + bottom) / 2}) rotate(-90)"))
    return parts


def _series(series: Series, panel: Panel, frame: Frame) -> str:
    """Draw a line with its band, or marks with their intervals."""
    style = Style.of(series.place)
    points = [p for p in series.points if math.isfinite(p.x.value) and math.isfinite(p.y.value)]
    parts = []
    if series.joined and points:
        parts += [_band(points, frame) if series.band else "", path(f"M{_line(points, frame)}", "line", **dash(style))]
    if series.level:
        parts += [path(f"M{frame.x.start},{frame.y.at(point.y.value)}H{frame.x.end}", "line", stroke_dasharray=5)
                  for point in points]
    marks = _MARKS if series.joined and len(points) > _MARKS else len(points)
    marks = 0 if series.faint else marks
    marked = {round(number * (len(points) - 1) / max(marks - 1, 1)) for number in range(marks)}
    parts += [_mark(points[number], series, panel, frame, style) for number in sorted(marked)]
    looks = " ".join(["series", f"c{style.colour}", *["hollow"] * series.hollow, *["faint"] * series.faint])
    return element("g", "".join(parts), class_=looks, data_series=series.name)


def _mark(point: Point, series: Series, panel: Panel, frame: Frame, style: Style) -> str:
    """Draw a marker, its intervals and its label, with the words that are shown when it is pointed at."""
    x, y = frame.x.at(point.x.value), frame.y.at(point.y.value)
    intervals = "" if series.joined else _intervals(point, frame)
    label = element("text", escaped(point.label), class_="label", x=x + 8, y=y - 7) if point.label else ""
    hit = element("circle", class_="hit", cx=x, cy=y, r=11)
    return element("g", intervals, marker(style.marker, x, y), hit, label, data_tip=_tip(point, series, panel))


def _tip(point: Point, series: Series, panel: Panel) -> str:
    """Describe a point in words."""
    if point.tip:
        return point.tip
    low, high = ends(point)
    values = [f"{scale.label} {scale.write(estimate.value, '.4g')}"
              for scale, estimate in ((panel.x, point.x), (panel.y, point.y)) if scale.ticks is None]
    interval = "" if math.isnan(low) else f" ({low:.3f} to {high:.3f})"
    label = f", epsilon {point.label}" if point.label else ""
    return f"{series.name}: {', '.join(values)}{interval}{label}"


def _intervals(point: Point, frame: Frame) -> str:
    """Draw the intervals of a mark."""
    x, y = frame.x.at(point.x.value), frame.y.at(point.y.value)
    lines = ""
    if not math.isnan(point.x.low):
        lines += path(f"M{frame.x.at(point.x.low)},{y}H{frame.x.at(point.x.high)}", "bar")
    if not math.isnan(point.y.low):
        lines += path(f"M{x},{frame.y.at(point.y.low)}V{frame.y.at(point.y.high)}", "bar")
    return lines


def _band(points: Sequence[Point], frame: Frame) -> str:
    """Draw the area between the ends of the intervals of a line's points."""
    known = [point for point in points if not math.isnan(point.y.low)]
    if len(known) < 2:
        return ""
    upper = [f"{frame.x.at(p.x.value)},{frame.y.at(p.y.high)}" for p in known]
    lower = [f"{frame.x.at(p.x.value)},{frame.y.at(p.y.low)}" for p in reversed(known)]
    return path(f"M{' L'.join([*upper, *lower])}Z", "band")


def _line(points: Sequence[Point], frame: Frame) -> str:
    """Return the corners of a line through all points."""
    return " L".join(f"{frame.x.at(point.x.value)},{frame.y.at(point.y.value)}" for point in points)


_BAR_ROW, _BAR_LEFT, _BAR_LENGTH, _BAR_RIGHT, _BAR_LETTER = 22, 150, 360, 130, 7
_BAR_STYLE = "text{font:13px sans-serif;fill:#888}.title{font-weight:bold}"


def bar_chart(title: str, panels: Mapping[str, Mapping[str, Estimate]], extent: Range | None = None) -> str:
    """Draw panels of bars by the panels' names and the bars': see `bars`."""
    return bars(Figure("bars", title, "", tuple(
        Panel(name, Scale(""), Scale("", ticks=dict(enumerate(values))),
              (Series(name, 0, tuple(Point(value, Estimate(row)) for row, value in enumerate(values.values()))),))
        for name, values in panels.items())), extent)


def bars(figure: Figure, extent: Range | None = None) -> str:
    """Draw panels below each other as one file, a bar for each row of the only series of a panel.

    All are over the range `extent`, or each panel over its own values and 0.
    """
    names = [list((panel.y.ticks or {}).values()) for panel in figure.panels]
    left = max(_BAR_LEFT, 8 + _BAR_LETTER * max(len(name) for labels in names for name in labels))
    parts, y = [], 8
    for panel, labels in zip(figure.panels, names, strict=True):
        parts.append(element("text", escaped(panel.title), class_="title", x=8, y=y + 14))
        values = [point.x for point in panel.series[0].points]
        axis = Axis(extent or _extent(values), left, left + _BAR_LENGTH)
        parts += [_bar(label, value, y + _BAR_ROW * row, axis)
                  for row, (label, value) in enumerate(zip(labels, values, strict=True), 1)]
        y += _BAR_ROW * (len(values) + 1) + 12
    return document(figure.title, left + _BAR_LENGTH + _BAR_RIGHT, y, _BAR_STYLE, *parts)


def _extent(values: Sequence[Estimate]) -> Range:
    """Return the range that holds 0 and all bars with their intervals, as far as the longest reaches to the right."""
    low = min(0.0, *(_ends(value)[0] for value in values))
    high = max(abs(value.value) + _ends(value)[1] - value.value for value in values)
    return Range(low, high if high > low else low + 1)


def _bar(label: str, value: Estimate, y: int, axis: Axis) -> str:
    """Draw one bar from 0, or from the lower end of a logarithmic axis, with its label, interval and value."""
    zero, end = axis.at(0.0) if not axis.range.log else axis.start, axis.at(value.value)
    low, high = map(axis.at, _ends(value))
    middle, digits = y + _BAR_ROW / 2 - 1, 0 if abs(value.value) >= 10 else 4
    return (text(label, 8, y + 15)
            + element("rect", x=min(zero, end), y=y, width=round(abs(end - zero), 1), height=_BAR_ROW - 3,
                      fill=COLOURS[0])
            + element("line", x1=low, x2=high, y1=middle, y2=middle, stroke=COLOURS[1], stroke_width=2)
            + text(f"{value.value:,.{digits}f}", round(max(zero, high) + 6, 1), y + 15))


def _ends(value: Estimate) -> tuple[float, float]:
    """Return the ends of a bar's interval, or twice its value."""
    return (value.value, value.value) if math.isnan(value.low) else (value.low, value.high)


SWATCH = 34
"""Width of a sample in a legend."""


def swatch(place: int) -> str:
    """Draw the line and marker of a series, for a legend."""
    return element("svg", sample(place), class_="swatch", viewBox=f"0 0 {SWATCH} 14", aria_hidden="true")


def sample(place: int) -> str:
    """Draw the line and marker of series number `place`."""
    style = Style.of(place)
    line = path("M1,7H33", "line", **dash(style))
    return element("g", line, marker(style.marker, 17, 7), class_=f"c{style.colour}")


def dash(style: Style) -> dict[str, str]:
    """Return the dash pattern of a line as an attribute."""
    return {"stroke_dasharray": " ".join(map(str, style.dash))} if style.dash else {}


_SHAPES = {"square": "M-4,-4H4V4H-4Z", "triangle": "M0,-5L5,4H-5Z", "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
           "down": "M0,5L5,-4H-5Z", "plus": "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z",
           "cross": "M-4.6,-2.6L-2.6,-4.6L0,-2L2.6,-4.6L4.6,-2.6L2,0L4.6,2.6L2.6,4.6L0,2L-2.6,4.6L-4.6,2.6L-2,0Z",
           "star": "M0,-6L1.6,-1.9L6,-1.9L2.5,0.8L3.7,5L0,2.4L-3.7,5L-2.5,0.8L-6,-1.9L-1.6,-1.9Z"}


def marker(shape: str, x: float, y: float) -> str:
    """Draw a marker around a point."""
    if shape == "circle":
        return element("circle", class_="marker", cx=x, cy=y, r=4.2)
    return element("path", class_="marker", transform=f"translate({x} {y})", d=_SHAPES[shape])
