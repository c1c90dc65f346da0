"""Figures as data: what is drawn, apart from how. `panels` draws them as SVG, `paper` for papers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedfair.accounting.figures import up
from simulations.report.estimates import Estimate
from simulations.report.svg import COLOURS
from simulations.report.tables import Epsilon, Table

MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "star")
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 3))


class Style(NamedTuple):
    """What tells a series from the others, thrice: a colour, a marker and a dash pattern."""

    colour: int
    marker: str
    dash: tuple[int, ...]

    @staticmethod
    def of(place: int) -> Style:
        """Return the style of series number `place`."""
        return Style(place % len(COLOURS), MARKERS[place % len(MARKERS)], DASHES[place % len(DASHES)])


class Point(NamedTuple):
    """A place in a panel, with intervals along both axes, and words beside it."""

    x: Estimate
    y: Estimate
    label: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one name, joined by a line with a band, or each by itself with its intervals.

    `hollow` marks are those of points that others beat. A `level` series has a dashed line at the height of each point.
    A line without its `band` is a line alone, and a `faint` one is there to compare another with.
    """

    name: str
    place: int
    points: tuple[Point, ...]
    joined: bool = True
    hollow: bool = False
    level: bool = False
    band: bool = True
    faint: bool = False


@dataclass(frozen=True)
class Scale:
    """An axis: its label, whether it is logarithmic, ticks with words, and a `guide`: a value with a dotted line.

    Along an axis of epsilons values are written rounded up.
    """

    label: str
    log: bool = False
    ticks: Mapping[float, str] | None = None
    guide: float | None = None
    epsilon: bool = False

    def write(self, value: float, form: str) -> str:
        """Write a value along the axis."""
        return up(value, form) if self.epsilon else f"{value:{form}}"

    def cell(self, value: float) -> float:
        """Return a value as a cell of a table."""
        return Epsilon(value) if self.epsilon else value


@dataclass(frozen=True)
class Panel:
    """One pair of axes; drawn `again` if another panel of the figure has the same points."""

    title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    again: bool = False

    def words(self) -> str:
        """Return what the panel shows at the end of each series, for those who cannot see it."""
        return "; ".join(f"{series.name} {_last(series, self)}" for series in self.series
                         if series.points and not series.faint)


@dataclass(frozen=True)
class Figure:
    """Panels of one kind under a title, a series for each method; `name` is that of its files.

    The panels share the range of an axis if `same` names it.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    same: Literal["x", "y", "neither"] = "neither"

    def legend(self) -> dict[str, int]:
        """Return the numbers of all series by name, in order."""
        return dict(sorted({s.name: s.place for panel in self.panels for s in panel.series}.items(),
                           key=lambda pair: pair[1]))

    def table(self) -> Table:
        """Return every point that is drawn."""
        over = self.panels[0].y.label  # none where every method has a row of its own
        rows = [(panel.title, series.name, _value(point.x.mean, panel.x),
                 *([panel.y.cell(point.y.mean)] if over else []), *ends(point))
                for panel in self.panels if not panel.again for series in panel.series for point in series.points]
        return Table(f"{self.name}-data", f"Data of the figure: {self.title}",
                     ("panel", "method", self.panels[0].x.label, *([over] if over else []), "low", "high"), rows)


def ends(point: Point) -> tuple[float, float]:
    """Return the ends of a point's interval, along the axis that has one."""
    estimate = point.x if math.isnan(point.y.low) else point.y
    return estimate.low, estimate.high


def _value(value: float, scale: Scale) -> float | str:
    """Return a value, or the words at its tick."""
    return scale.ticks[value] if scale.ticks is not None and value in scale.ticks else scale.cell(value)


def _last(series: Series, panel: Panel) -> str:
    """Return the last point in words."""
    point = series.points[-1]
    measured, scale = (point.x, panel.x) if panel.y.ticks is not None else (point.y, panel.y)
    text = scale.write(measured.mean, ".3g")
    return text if math.isnan(measured.low) else f"{text} ({measured.low:.3g} to {measured.high:.3g})"
