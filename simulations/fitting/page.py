"""The page of a fit: one HTML file for a risk committee, which needs no server and asks nobody for anything.

Its pictures show rates by group, the front, calibration, and the scores of the scorecard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup, escape

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import UNKNOWN, Estimate, records
from fedfair.fairness.metrics import ALL, shown_in
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawn
from simulations.files.atomic_files import in_json
from simulations.fitting.beside import COMPARED, beside, pairs, unknown_groups
from simulations.fitting.caveats import caveats
from simulations.fitting.deciding import Deciding, deciding, in_words
from simulations.fitting.figures_by_site import LESS, OF_SITES
from simulations.fitting.fit_folder import OF_ALL, OF_GROUPS, Story
from simulations.fitting.privacy_statement import how_selected, promise
from simulations.report.page import as_it_is, templates
from simulations.results.environment import installed
from simulations.results.scorecard import EVERY, HIGH, LOW, RECORDS

_SLIDING = {metric.name: metric.words for metric in shown_in("fit groups")
            if metric.of == "counts" and metric.name != "records"}
"""Figures of a group that are known at every point of the front: those of decisions."""

_MOST = 6
"""Columns of the scorecard whose pictures are not folded."""

_FOLDED = 12
"""Columns that decide, or fewer, are all in the picture."""

RATES = ("positive_rate", "true_positive_rate", "false_positive_rate", "accuracy")
"""Rates that are drawn by group."""

_LONGEST = 20  # letters of a name beside a row
_SHARES = {share: f"{share:g}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}


def page(story: Story) -> str:
    """Return the whole file."""
    decides = deciding(story)
    environment, style = templates("simulations.fitting"), templates("simulations.report")
    return environment.get_template("page.html.j2").render(
        story=story, caveats=[*map(_coded, caveats(story))], groups=OF_GROUPS, overall=OF_ALL, of_sites=OF_SITES,
        less=LESS, beside=beside(story), strangers=unknown_groups(story), compared=COMPARED, pairs=[*pairs(story)],
        sliding=_SLIDING,
        promise=promise(story), selected=how_selected(story), version=installed("fedfair"),
        epsilon=up(story.epsilon, ".4g"),
        delta=up(story.ledger.delta, ".3g"), style=as_it_is(style, "page.css"),
        weights=_marked(weights(decides)), decides=decides, what_decides=in_words(decides, story), folded=_FOLDED,
        rates=_marked(rates(story)), scores=_marked(scores(story)), most=_MOST,
        front=Markup(front(story)),  # noqa: S704 - every text in it is escaped
        curves=[(group, Markup(calibration(story, group))) for group in story.groups],  # noqa: S704
        data=Markup(in_json(_points(story)).replace("<", "\\u003c")),  # noqa: S704 - no tag can begin in it
        card=_card(story), nodes=_nodes(story))


def _coded(text: str) -> Markup:
    """Return a text of Markdown with its commands as code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped


def _marked(pictures: list[Picture]) -> list[tuple[str, Markup]]:
    """Return titles and drawings, which the page takes as they are."""
    return [(title, Markup(svg)) for title, svg in pictures]  # noqa: S704 - every text in it is escaped


def _points(story: Story) -> list[dict[str, Any]]:
    """Return what the slider shows, point by point."""
    shown = []
    for number in story.points:
        cells = {f"{metric}/{group}": [cell.text, cell.interval] for metric in _SLIDING for group in story.groups
                 for cell in [story.at(number, metric, group)]}
        cells |= {f"{metric}/all": [cell.text, cell.interval] for metric in ("accuracy", *OF_ALL)
                  for cell in [story.at(number, metric)]}
        shown.append({"tau": story.tau(number), "cells": cells, "chosen": number == story.chosen})
    return shown


def _card(story: Story) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return the scorecard: column, value, about how many training records have it, and each class's score.

    A score has its interval beside it, "" where none is known.
    """
    cards = []
    for row in records(story.scorecard):
        cells = [(f"{row[f'score of {label}']:+.3f}", _between(row.get(f"{LOW} {label}"), row.get(f"{HIGH} {label}")))
                 for label in story.description.labels]
        cards.append((str(row["column"]), "" if pd.isna(row["value"]) else str(row["value"]), _about(row.get(RECORDS)),
                      cells))
    return cards


def _between(low: float | None, high: float | None) -> str:
    """Return the ends of an interval in words."""
    return "" if low is None or high is None or low != low else f"{low:+.3f} to {high:+.3f}"


def _about(number: float | None) -> str:
    """Return a noisy number of records in words."""
    if number is None or pd.isna(number):
        return ""
    return f"{number:,.0f}" if number else "none told"


def _nodes(story: Story) -> list[tuple[str, list[str]]]:
    """Return what each node contributed: its name, and cells."""
    return [(str(row["node"]), [f"{row['records']:,}", f"{row['answered']} of {row['rounds']}",
                                up(row["epsilon"], ".4g")]) for row in records(story.by_node)]


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


def weights(found: Sequence[Deciding]) -> list[Picture]:
    """Draw the weight of each column in decisions, and by how much it tells groups apart, if that is known.

    Args:
        found: What decides, the largest weight first.
    """
    shown = found[:_FOLDED]
    if not shown:
        return []
    shares = _pictures("weights", [_rows("weight in decisions", {each.column: Estimate(each.share) for each in shown},
                                         Scale("share of all columns' weight", ticks=_up_to(shown[0].share)))])
    pairs = {(each.first, each.second) for each in shown} | {(each.second, each.first) for each in shown}
    if not shown[0].first:
        return shares
    apart = {each.column: each.difference for each in shown}
    if len(pairs) == 2:  # two groups: the sign says which of them is above
        widest = max(shown, key=lambda each: each.difference.value)
        first, second = widest.first, widest.second
        apart = {each.column: each.difference if each.first == first else _turned(each.difference) for each in shown}
        title = f"mean score of {_short(first)} less that of {_short(second)}"
    else:
        title = "difference of mean scores, of the two groups furthest apart"
    return [*shares, *_pictures("apart", [_rows(title, apart, Scale("score", guide=0.0))])]


def _up_to(share: float) -> dict[float, str]:
    """Return ticks from 0 on, the last of them at a share or above."""
    return {tick: words for tick, words in _SHARES.items() if tick < share + 0.25}


def _turned(shown: Estimate) -> Estimate:
    """Return a difference the other way round."""
    return Estimate(-shown.value, -shown.high, -shown.low)


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
    """Draw accuracy against the difference of selection rates, a mark with intervals for each point of the front.

    The band behind them holds the best accuracy with at most a difference, as far as the intervals tell: it rises only.
    """
    points = []
    for number in story.points:
        gap, right = story.at(number, "demographic_parity"), story.at(number, "accuracy")
        name = f"tau {story.tau(number):g}"
        tip = f"{name}: accuracy {_said(right)}, difference {_said(gap)}"
        points.append((name, Point(gap, right, tip=tip)))
    title = "The front: accuracy against the difference of selection rates"
    return _drawing("front", title, Scale("difference of selection rates"), Scale("accuracy"), points,
                    best_within([(point.x, point.y) for _, point in points]))


def best_within(points: Sequence[tuple[Estimate, Estimate]]) -> list[Point]:
    """Return the best accuracy that a front has with at most a difference, as a staircase that rises only.

    Args:
        points: Difference and accuracy of each classifier, with their intervals; what cannot be told is left out.

    Returns:
        Corners, from left to right: the best accuracy of the classifiers whose difference is at most as large, by
        their figures; the lower end counts those whose difference is not larger in its whole interval, by the lower
        ends of their accuracies, NaN where there is none, and the upper end those whose difference may be as small.
    """
    told = [(gap, right) for gap, right in points if gap.low == gap.low and right.low == right.low]
    if not told:
        return []
    right_of = max(gap.high for gap, _ in told)
    steps = sorted({number for gap, _ in told for number in gap} - {right_of})
    start = min(gap.value for gap, _ in told)

    def best(at: float) -> Estimate:
        """Return the best accuracy with at most a difference."""
        low = max((right.low for gap, right in told if gap.high <= at), default=math.nan)
        high = max(right.high for gap, right in told if gap.low <= at)
        return Estimate(max(right.value for gap, right in told if gap.value <= at), low, high)

    made = [(at, best(at)) for at in [start, *(step for step in steps if step > start), right_of]]
    corners = [Point(Estimate(at), before) for (at, _), (_, before) in zip(made[1:], made, strict=False)]
    return [Point(Estimate(made[0][0]), made[0][1]),
            *chain.from_iterable(zip(corners, (Point(Estimate(at), here) for at, here in made[1:]), strict=True))]


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
    series = (Series("", 0, tuple(line), band=name == "front", faint=True),
              *(Series(words, 0, (point,), joined=False) for words, point in points))
    (svg,) = drawn(Figure(name, title, "", (Panel(title, x, y, series),)), "fit")
    return svg
