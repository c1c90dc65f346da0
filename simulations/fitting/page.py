"""The page of a fit: one HTML file for a risk committee, which needs no server and asks nobody for anything."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedfair.accounting.figures import up
from fedfair.datasets.names import visible
from simulations.fitting.drawings import calibration, front
from simulations.fitting.how_trained import how_selected
from simulations.fitting.promise import promise
from simulations.fitting.shown import records
from simulations.fitting.site_story import LESS, OF_SITES
from simulations.fitting.story import OF_ALL, OF_GROUPS, Story
from simulations.report.page_files import page_folder
from simulations.results.atomic_files import in_json

_SLIDING = ("accuracy", "positive_rate", "true_positive_rate", "false_positive_rate", "precision")
"""Figures of a group that are known at every point of the front."""


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
        sliding={name: OF_GROUPS[name] for name in _SLIDING},
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
