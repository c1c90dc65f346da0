"""The page of a fit: one HTML file for a risk committee, which needs no server and asks nobody for anything.

The pictures of a fit's page: the front, and calibration by group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pandas as pd
from markupsafe import Markup

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate, records
from fedfair.fairness.metrics import shown_in
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.panels import drawn
from simulations.files.atomic_files import in_json
from simulations.fitting.figures_by_pair import COMPARED, pairs
from simulations.fitting.figures_by_site import LESS, OF_SITES
from simulations.fitting.fit_folder import OF_ALL, OF_GROUPS, Story
from simulations.fitting.privacy_statement import how_selected, promise
from simulations.report.page_files import as_it_is, templates
from simulations.results.scorecard import RECORDS


def front(story: Story) -> str:
    """Draw accuracy against the difference of selection rates, a mark with intervals for each point of the front."""
    points = []
    for number in story.points:
        gap, right = story.at(number, "demographic_parity"), story.at(number, "accuracy")
        name = f"tau {story.tau(number):g}"
        tip = f"{name}: accuracy {right.text} ({right.interval}), difference {gap.text} ({gap.interval})"
        points.append((name, Point(gap, right, tip=tip)))
    title = "The front: accuracy against the difference of selection rates"
    return _drawing("front", title, Scale("difference of selection rates"), Scale("accuracy"), points,
                    [point for _, point in points])


def calibration(story: Story, group: str) -> str:
    """Draw how often the favourable class occurs where the model states a probability; "" if that is unknown."""
    points = []
    for row in records(story.curves):
        share = Estimate(row["share"], row["low"], row["high"])
        if row["split"] == "test" and str(row["group"]) == group and share.told:
            name = f"stated {row['stated']:.2f}"
            tip = f"{name}, so {share.text} ({share.interval})"
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


_SLIDING = {metric.name: metric.words for metric in shown_in("fit groups")
            if metric.of == "counts" and metric.name != "records"}
"""Figures of a group that are known at every point of the front: those of decisions."""


def page(story: Story) -> str:
    """Return the whole file."""
    environment, style = templates("simulations.fitting"), templates("simulations.report")
    return environment.get_template("page.html.j2").render(
        story=story, groups=OF_GROUPS, overall=OF_ALL, of_sites=OF_SITES, less=LESS,
        compared=COMPARED, pairs=[*pairs(story)],
        sliding=_SLIDING,
        promise=promise(story), selected=how_selected(story), version=version("fedfair"),
        epsilon=up(story.epsilon, ".4g"),
        delta=up(story.ledger.delta, ".3g"), style=as_it_is(style, "page.css"),
        own_style=as_it_is(environment, "page.css"), script=as_it_is(environment, "page.js"),
        front=Markup(front(story)),  # noqa: S704 - every text in it is escaped
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


def _card(story: Story) -> list[tuple[str, str, str, list[str]]]:
    """Return the scorecard: column, value, about how many training records have it, and the score of each class."""
    scores = story.scorecard.filter(like="score of ").to_numpy().tolist()
    return [(str(row["column"]), "" if pd.isna(row["value"]) else str(row["value"]), _about(row.get(RECORDS)),
             [f"{number:+.3f}" for number in own])
            for row, own in zip(records(story.scorecard), scores, strict=True)]


def _about(number: float | None) -> str:
    """Return a noisy number of records in words."""
    if number is None or pd.isna(number):
        return ""
    return f"{number:,.0f}" if number else "none told"


def _nodes(story: Story) -> list[tuple[str, list[str]]]:
    """Return what each node contributed: its name, and cells."""
    return [(str(row["node"]), [f"{row['records']:,}", f"{row['answered']} of {row['rounds']}",
                                up(row["epsilon"], ".4g")]) for row in records(story.by_node)]
