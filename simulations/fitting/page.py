"""The page of a fit: one HTML file for a risk committee, which needs no server and asks nobody for anything.

The pictures of a fit's page: the front, and calibration by group.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedfair.accounting.figures import up
from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate, records
from fedfair.fairness.metrics import shown_in
from simulations.drawing.svg import element, escaped, path, text
from simulations.files.atomic_files import in_json
from simulations.fitting.figures_by_site import LESS, OF_SITES
from simulations.fitting.fit_folder import OF_ALL, OF_GROUPS, Story
from simulations.fitting.privacy_statement import how_selected, promise
from simulations.report.page_files import page_folder

_WIDE, _HIGH, _LEFT, _BELOW = 560.0, 330.0, 52.0, 44.0


def front(story: Story) -> str:
    """Draw accuracy against the difference of selection rates, a mark with intervals for each point of the front.

    Args:
        story: The fit.
    """
    marks = [(number, story.at(number, "demographic_parity"), story.at(number, "accuracy")) for number in story.points]
    marks = [mark for mark in marks if mark[1].value == mark[1].value and mark[2].value == mark[2].value]
    if not marks:
        return ""
    across = _Axis(0.0, max(gap.high for _, gap, _ in marks), _LEFT, _WIDE - 12)
    up = _Axis(min(right.low for _, _, right in marks), max(right.high for _, _, right in marks), _HIGH - _BELOW, 10)
    inside = [*_grid(across, up, "difference of selection rates", "accuracy")]
    line = "M" + " L".join(f"{across.at(gap.value):.1f},{up.at(right.value):.1f}" for _, gap, right in marks)
    inside.append(path(line, "line c0"))
    for place, (number, gap, right) in enumerate(marks):
        x, y = across.at(gap.value), up.at(right.value)
        bars = (f"M{across.at(gap.low):.1f},{y:.1f} H{across.at(gap.high):.1f} "
                f"M{x:.1f},{up.at(right.low):.1f} V{up.at(right.high):.1f}")
        title = (f"tau {story.tau(number):g}: accuracy {right.text} ({right.interval}), difference {gap.text} "
                 f"({gap.interval})")
        inside.append(element("g", element("title", escaped(title)), path(bars, "interval"),
                              element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=5.5, class_="marker c0"),
                              class_="point chosen" if number == story.chosen else "point", data_place=place))
    words = "; ".join(f"difference {gap.text}, accuracy {right.text}" for _, gap, right in marks)
    return element("svg", element("title", "The front: accuracy against the difference of selection rates"),
                   element("desc", escaped(words)), *inside, viewBox=f"0 0 {_WIDE:g} {_HIGH:g}", role="img", id="front")


def calibration(story: Story, group: str) -> str:
    """Draw how often the favourable class occurs where the model states a probability; "" if that is unknown.

    Args:
        story: The fit.
        group: Name of the group.
    """
    points = [(float(row["stated"]), Estimate(row["share"], row["low"], row["high"])) for row in records(story.curves)
              if row["split"] == "test" and str(row["group"]) == group]
    told = [(stated, share) for stated, share in points if share.told]
    if not told:
        return ""
    across, up = _Axis(0.0, 1.0, _LEFT, 300 - 12), _Axis(0.0, 1.0, 260 - _BELOW, 10)
    inside = [*_grid(across, up, "stated probability", "how often it is so"),
              path(f"M{across.at(0):.1f},{up.at(0):.1f} L{across.at(1):.1f},{up.at(1):.1f}", "guide")]
    for stated, share in told:
        x, y = across.at(stated), up.at(share.value)
        told_words = escaped(f"stated {stated:.2f}, so {share.text} ({share.interval})")
        inside.append(element("g", element("title", told_words),
                              path(f"M{x:.1f},{up.at(share.low):.1f} V{up.at(share.high):.1f}", "interval"),
                              element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5, class_="marker c0")))
    words = "; ".join(f"stated {stated:.2f}, so {share.text}" for stated, share in told)
    return element("svg", element("title", escaped(f"Calibration of {group}")), element("desc", escaped(words)),
                   *inside, viewBox="0 0 300 260", role="img")


class _Axis:
    """A linear axis from numbers to places in the picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        margin = (high - low or 0.1) * 0.04
        self.low, self.high = max(low - margin, 0.0), min(high + margin, 1.0)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """Return the place of a number, inside the axis."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round numbers along the axis."""
        step = next(step for step in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (self.high - self.low) / step <= 6)
        first = int(self.low / step) + (self.low > 0)
        return [step * number for number in range(first, int(self.high / step + 1e-9) + 1)]


def _grid(across: _Axis, up: _Axis, below: str, beside: str) -> list[str]:
    """Draw grid, ticks and names of two axes."""
    low, high, left, right = up.start, up.end, across.start, across.end
    parts = []
    for tick in across.ticks():
        x = across.at(tick)
        parts += [path(f"M{x:.1f},{low:.1f} V{high:.1f}", "grid"),
                  text(f"{tick:.3g}", round(x, 1), low + 15, text_anchor="middle", class_="label")]
    for tick in up.ticks():
        y = up.at(tick)
        parts += [path(f"M{left:.1f},{y:.1f} H{right:.1f}", "grid"),
                  text(f"{tick:.3g}", left - 6, round(y + 3, 1), text_anchor="end", class_="label")]
    middle = (low + high) / 2
    return [*parts, text(below, (left + right) / 2, low + 33, text_anchor="middle"),
            text(beside, 12, middle, text_anchor="middle", transform=f"rotate(-90 12 {middle:g})")]


_SLIDING = {metric.name: metric.words for metric in shown_in("fit groups")
            if metric.of == "counts" and metric.name != "records"}
"""Figures of a group that are known at every point of the front: those of decisions."""


def page(story: Story) -> str:
    """Return the whole file.

    Args:
        story: The fit.
    """
    loader = FileSystemLoader(page_folder("simulations.fitting"))
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                              lstrip_blocks=True, finalize=_visible)
    style = Environment(loader=FileSystemLoader(page_folder("simulations.report")), autoescape=True)
    return environment.get_template("page.html.j2").render(
        story=story, groups=OF_GROUPS, overall=OF_ALL, of_sites=OF_SITES, less=LESS,
        sliding=_SLIDING,
        promise=promise(story), selected=how_selected(story), version=version("fedfair"),
        epsilon=up(story.epsilon, ".4g"),
        delta=up(story.ledger.delta, ".3g"), style=_text(style, "page.css"), own_style=_text(environment, "page.css"),
        script=_text(environment, "page.js"), front=Markup(front(story)),  # noqa: S704 - every text in it is escaped
        curves=[(group, Markup(calibration(story, group))) for group in story.groups],  # noqa: S704
        data=Markup(in_json(_points(story)).replace("<", "\\u003c")),  # noqa: S704 - no tag can begin in it
        card=_card(story), nodes=_nodes(story))


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


def _card(story: Story) -> list[tuple[str, str, list[str]]]:
    """Return the scorecard: column, value, and the score of each class."""
    scores = story.scorecard.filter(like="score of ").to_numpy().tolist()
    return [(str(row["column"]), "" if pd.isna(row["value"]) else str(row["value"]),
             [f"{number:+.3f}" for number in own])
            for row, own in zip(records(story.scorecard), scores, strict=True)]


def _nodes(story: Story) -> list[tuple[str, list[str]]]:
    """Return what each node contributed: its name, and cells."""
    return [(str(row["node"]), [f"{row['records']:,}", f"{row['answered']} of {row['rounds']}",
                                up(row["epsilon"], ".4g")]) for row in records(story.by_node)]


def _visible(value: object) -> object:
    """Show control characters in names from the data."""
    return visible(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def _text(environment: Environment, name: str) -> Markup:
    """Return a file of a package, to put into the page as it is."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 - our own style and script
