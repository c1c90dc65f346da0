"""The pictures of a fit's page: rates by group, the front, calibration, and the scores of the scorecard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedfair.fairness.intervals import UNKNOWN, Estimate, records
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.panels import drawn
from simulations.fitting.fit_folder import OF_GROUPS, Story
from simulations.results.scorecard import EVERY, HIGH, LOW

RATES = ("positive_rate", "true_positive_rate", "false_positive_rate", "accuracy")
"""Rates that are drawn by group."""

_LONGEST = 20  # letters of a name beside a row
_SHARES = {share: f"{share:g}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}


class Picture(NamedTuple):
    """A picture: what it is of, and the drawing as SVG."""

    title: str
    svg: str


def rates(story: Story) -> list[Picture]:
    """Draw each rate of all groups as dots with their intervals, all on one scale; what cannot be told has no dot."""
    panels = []
    for metric in RATES:
        figures = {group: story.figure(metric, group) for group in (*story.groups, ALL)}
        shown = {group: figure if figure.told else UNKNOWN for group, figure in figures.items()}
        panels.append(_rows(OF_GROUPS[metric], shown, Scale("", ticks=_SHARES)))
    return _pictures("rates", panels)


def scores(story: Story) -> list[Picture]:
    """Draw the score that each category and bin adds for the favourable class, the column that moves most first."""
    name, columns = story.favourable, dict[str, dict[str, Estimate]]()
    for row in records(story.scorecard):
        ends = (row.get(f"{end} {name}", math.nan) for end in (LOW, HIGH))
        if row["column"] != EVERY:
            value = str(row["value"]).replace(" to under ", "\u2013")
            columns.setdefault(str(row["column"]), {})[value] = Estimate(row[f"score of {name}"], *ends)
    moved = sorted(columns, key=lambda column: -_reach(columns[column]))
    return _pictures("scores", [_rows(column, columns[column], Scale(f"score for {_short(name)}", guide=0.0))
                                for column in moved])


def _reach(scores: Mapping[str, Estimate]) -> float:
    """Return by how much the scores of a column differ."""
    values = [score.value for score in scores.values()]
    return max(values) - min(values)


def _rows(title: str, shown: Mapping[str, Estimate], x: Scale) -> Panel:
    """Return a panel with a row for each figure, the first on top."""
    places = dict(zip(shown, range(len(shown) - 1, -1, -1), strict=True))
    points = tuple(Point(figure, Estimate(places[name]), tip=f"{name}: {_written(figure)}")
                   for name, figure in shown.items() if figure.value == figure.value)
    return Panel(title, x, Scale("", ticks={float(place): _short(name) for name, place in places.items()}),
                 (Series("", 0, points, joined=False),))


def _pictures(name: str, panels: Sequence[Panel]) -> list[Picture]:
    """Draw panels on one scale."""
    if not panels:
        return []
    drawings = drawn(Figure(name, name, "", tuple(panels), same="x"), "fit")
    return [Picture(panel.title, svg) for panel, svg in zip(panels, drawings, strict=True)]


def _short(name: str) -> str:
    """Return a name that is not too long for a row."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST - 1]}\u2026"


def _written(figure: Estimate) -> str:
    """Return a value with its interval, if it has one, whatever it tells."""
    return f"{figure.value:.3f}" + ("" if figure.low != figure.low else f" ({figure.low:.3f} to {figure.high:.3f})")


def _said(figure: Estimate) -> str:
    """Return a figure with its interval, if it tells anything."""
    return f"{figure.text} ({figure.interval})" if figure.interval else figure.text


def front(story: Story) -> str:
    """Draw accuracy against the difference of selection rates, a mark with intervals for each point of the front."""
    points = []
    for number in story.points:
        gap, right = story.at(number, "demographic_parity"), story.at(number, "accuracy")
        name = f"tau {story.tau(number):g}"
        tip = f"{name}: accuracy {_said(right)}, difference {_said(gap)}"
        points.append((name, Point(gap, right, tip=tip)))
    title = "The front: accuracy against the difference of selection rates"
    return _drawing("front", title, Scale("difference of selection rates"), Scale("accuracy"), points,
                    [point for _, point in points])


def calibration(story: Story, group: str) -> str:
    """Draw how often the favourable class occurs where the model states a probability; "" if that is unknown."""
    points = []
    for row in records(story.curves):
        share = Estimate(row["share"], row["low"], row["high"])
        if row["split"] == story.part and str(row["group"]) == group and share.told:
            name = f"stated {row['stated']:.2f}"
            tip = f"{name}, so {_said(share)}"
            points.append((name, Point(Estimate(row["stated"]), share, tip=tip)))
    right = [Point(Estimate(end), Estimate(end)) for end in (0.0, 1.0)]
    return _drawing(f"calibration-{story.groups.index(group)}", f"Calibration of {group}", Scale("stated probability"),
                    Scale("how often it is so"), points, right)


def _drawing(name: str, title: str, x: Scale, y: Scale, points: Sequence[tuple[str, Point]],
             line: Sequence[Point]) -> str:
    """Draw named points over a faint line; "" if none is known."""
    if not any(math.isfinite(point.x.value + point.y.value) for _, point in points):
        return ""
    series = (Series("", 0, tuple(line), band=False, faint=True),
              *(Series(words, 0, (point,), joined=False) for words, point in points))
    (svg,) = drawn(Figure(name, title, "", (Panel(title, x, y, series),)), "fit")
    return svg
