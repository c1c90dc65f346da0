"""Figures as data: what is drawn, apart from how. An axis has its range, its ticks, and where values lie in pixels.

`svg.drawn` draws them for a page, `svg.drawing` and `svg.bars` as one file, `paper.save_figure` for papers.

Small multiples: where the bands of many lines would lie over each other, each line has a panel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from simulations.drawing.table import Epsilon, Table

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#767676")
"""Okabe and Ito 2008, told apart by colour-blind people; grey for their black, yellow left out as too pale."""

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
