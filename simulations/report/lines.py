"""Lines over logarithmic axes, as one SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulations.report.estimates import Estimate
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.panels import drawing


def line_chart(title: str, x: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw a line for each name through points (x, y), both above 0; `x` labels the axis across."""
    series = []
    for place, (name, values) in enumerate(lines.items()):
        points = tuple(Point(Estimate(across), Estimate(up)) for across, up in values)
        series.append(Series(name, place, points))
    return drawing(Figure("lines", title, "", (Panel(title, Scale(x, log=True), Scale("", log=True), tuple(series)),)))
