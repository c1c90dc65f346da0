"""Figures as data: what is drawn, apart from how.

`panels.drawn` draws them for a page, `panels.drawing` and `panels.bars` as one file, `paper.save_figure` for papers.

Small multiples: where the bands of many lines would lie over each other, each line has a panel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from simulations.drawing.svg import COLOURS
from simulations.drawing.table import Epsilon, Table

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
    """A place in a panel, with intervals along both axes, and words beside it.

    `tip` is shown when the point is pointed at; by default its values.
    """

    x: Estimate
    y: Estimate
    label: str = ""
    tip: str = ""


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
        rows = [(panel.title, series.name, _value(point.x.value, panel.x),
                 *([panel.y.cell(point.y.value)] if over else []), *ends(point))
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
    text = scale.write(measured.value, ".3g")
    return text if math.isnan(measured.low) else f"{text} ({measured.low:.3g} to {measured.high:.3g})"


_BANDS = 3  # in one panel, at most
_APART = 2  # panels whose lines are drawn apart: all groups, and the smallest one


def apart(figure: Figure) -> Figure:
    """Return the figure with at most three bands in a panel.

    Panels with more lose their bands. The first two of them are drawn again, once for each line: that line with its
    band, and the others without.
    """
    crowded = [panel for panel in figure.panels if sum(map(_has_band, panel.series)) > _BANDS]
    if not crowded:
        return figure
    panels = [replace(panel, series=tuple(replace(series, band=False) for series in panel.series))
              if panel in crowded else panel for panel in figure.panels]
    multiples = [_alone(panel, series) for panel in crowded[:_APART] for series in panel.series if _has_band(series)]
    return replace(figure, panels=(*panels, *multiples), caption=(
        f"{figure.caption} More than {_BANDS} bands are not drawn over each other: those of "
        f"{' and '.join(panel.title for panel in crowded[:_APART])} are in panels of their own, the others in the data "
        "of this figure."))


def _has_band(series: Series) -> bool:
    """Return whether a line is drawn with a band."""
    known = [point for point in series.points if not math.isnan(point.y.low)]
    return series.joined and series.band and len(known) > 1


def _alone(panel: Panel, series: Series) -> Panel:
    """Return a panel in which one line has its band, and the others have none."""
    return replace(panel, title=f"{panel.title}: {series.name}", again=True, series=tuple(
        replace(each, band=each is series, faint=each is not series) for each in panel.series))
