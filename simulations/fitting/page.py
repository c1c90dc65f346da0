"""The page of a fit: one HTML file for a risk committee, which needs no server and asks nobody for anything."""

from __future__ import annotations

from typing import Any

import pandas as pd
from markupsafe import Markup

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import records
from fedfair.fairness.metrics import shown_in
from simulations.files.atomic_files import in_json
from simulations.fitting.beside import COMPARED, beside, pairs
from simulations.fitting.deciding import deciding, in_words
from simulations.fitting.figures_by_site import LESS, OF_SITES
from simulations.fitting.fit_folder import OF_ALL, OF_GROUPS, Story
from simulations.fitting.pictures import Picture, calibration, front, rates, scores, weights
from simulations.fitting.privacy_statement import how_selected, promise
from simulations.report.page import as_it_is, templates
from simulations.results.environment import installed
from simulations.results.scorecard import HIGH, LOW, RECORDS

_SLIDING = {metric.name: metric.words for metric in shown_in("fit groups")
            if metric.of == "counts" and metric.name != "records"}
"""Figures of a group that are known at every point of the front: those of decisions."""


def page(story: Story) -> str:
    """Return the whole file."""
    decides = deciding(story)
    environment, style = templates("simulations.fitting"), templates("simulations.report")
    return environment.get_template("page.html.j2").render(
        story=story, groups=OF_GROUPS, overall=OF_ALL, of_sites=OF_SITES, less=LESS,
        beside=beside(story), compared=COMPARED, pairs=[*pairs(story)],
        sliding=_SLIDING,
        promise=promise(story), selected=how_selected(story), version=installed("fedfair"),
        epsilon=up(story.epsilon, ".4g"),
        delta=up(story.ledger.delta, ".3g"), style=as_it_is(style, "page.css"),
        own_style=as_it_is(environment, "page.css"), script=as_it_is(environment, "page.js"),
        weights=_marked(weights(decides)), decides=decides, what_decides=in_words(decides, story), folded=_FOLDED,
        rates=_marked(rates(story)), scores=_marked(scores(story)), most=_MOST,
        front=Markup(front(story)),  # noqa: S704 - every text in it is escaped
        curves=[(group, Markup(calibration(story, group))) for group in story.groups],  # noqa: S704
        data=Markup(in_json(_points(story)).replace("<", "\\u003c")),  # noqa: S704 - no tag can begin in it
        card=_card(story), nodes=_nodes(story))


_MOST = 6
"""Columns of the scorecard whose pictures are not folded."""
_FOLDED = 12
"""Columns that decide, or fewer, are all in the picture."""


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
