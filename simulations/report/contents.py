"""What a report holds, in order: chapters of words, figures and tables.

Which panels of a figure say anything: those with nothing to compare are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedfair.fairness.metrics import shown_in
from simulations.drawing.figure import Figure, Panel, Series, apart
from simulations.drawing.table import Table
from simulations.engines.run import Progress
from simulations.report.figures import (
    accuracy_figure,
    bounds_figure,
    constants,
    ledger_figure,
    pareto_figure,
    training_figure,
)
from simulations.report.head import common_facts, facts
from simulations.report.tables import (
    choices_table,
    groups_table,
    ledger_by_group,
    ledger_by_method,
    ledger_by_observer,
    methods_table,
    metrics_table,
    nodes_table,
    sites_table,
    tests_table,
)
from simulations.results.comparison import Comparison
from simulations.results.ledger_table import notes, promise
from simulations.results.run_folder import Source
from simulations.statistics.statements import in_words

_SAME = 0.005  # of the largest value: less than a pixel


def telling(figure: Figure) -> Figure | None:
    """Return the figure with the panels that say something, or None if none does.

    Marks say something if there are two in different places, along an axis of epsilons at two different ones. Lines do
    if one of them has two points. Of epsilons, which the settings decide, several equal lines do not, nor does a panel
    that repeats an earlier one.
    """
    kept: list[Panel] = []
    for panel in figure.panels:
        if _says(panel) and not any(_repeats(panel, earlier) for earlier in kept):
            kept.append(panel)
    left_out = len(figure.panels) - len(kept)
    note = f" Left out: {left_out} panel{'s' * (left_out > 1)} in which nothing differs." if left_out else ""
    return replace(figure, panels=tuple(kept), caption=figure.caption + note) if kept else None


def _says(panel: Panel) -> bool:
    """Return whether a panel has something to compare."""
    if not any(series.joined for series in panel.series):
        points = [point for series in panel.series for point in series.points]
        places = {(point.x.value,) if panel.x.epsilon else (point.x.value, point.y.value) for point in points}
        return len(places) > 1
    lines = [series for series in panel.series if len(series.points) > 1]
    if len(lines) < 2 or not panel.y.epsilon:
        return bool(lines)
    return any(not _equal(lines[0], line) for line in lines[1:])


def _repeats(panel: Panel, earlier: Panel) -> bool:
    """Return whether a panel has the lines of an earlier one over the same axes."""
    if not panel.y.epsilon or (panel.x, panel.y) != (earlier.x, earlier.y) or len(panel.series) != len(earlier.series):
        return False
    return all(one.joined and one.name == other.name and _equal(one, other)
               for one, other in zip(panel.series, earlier.series, strict=True))


def _equal(one: Series, other: Series) -> bool:
    """Return whether two lines cannot be told apart by eye."""
    ours, theirs = ([(point.x.value, point.y.value) for point in series.points] for series in (one, other))
    if len(ours) != len(theirs):
        return False
    largest = np.nanmax(np.abs([ours, theirs]), axis=(0, 1))
    return bool(np.all(np.abs(np.subtract(ours, theirs)) <= _SAME * largest))


MOST = 12
"""Comparisons of a sweep that are shown in full."""


@dataclass(frozen=True)
class Chapter:
    """One comparison in full: findings in words, figures with notes below them, and tables.

    `facts` are the head: what was run on what, and the finding in one line.

    `promises` holds the methods by what they guarantee; `foundations` by method what the promise rests on. `name`
    distinguishes the chapter in identifiers and files.
    """

    name: str
    title: str
    facts: Sequence[tuple[str, str]]
    found: Sequence[str]
    results: Sequence[Figure | Table]
    training: Sequence[Figure]
    bounds: Figure | None
    still: Sequence[str]
    ledger: Sequence[Figure | Table]
    promises: dict[str, list[str]]
    foundations: dict[str, list[str]]

    def figures(self) -> list[Figure]:
        """Return all figures."""
        parts = [*self.results, *self.training, self.bounds, *self.ledger]
        return [part for part in parts if isinstance(part, Figure)]

    def tables(self) -> list[Table]:
        """Return all tables, without those of figures."""
        return [part for part in [*self.results, *self.ledger] if isinstance(part, Table)]


@dataclass(frozen=True)
class Overview:
    """What the choices of a sweep trade on one data set.

    `facts` are those that all share; `figure` is None if nothing in it can be compared; `left_out` counts the
    choices without a chapter.
    """

    name: str
    title: str
    facts: Sequence[tuple[str, str]]
    figure: Figure | None
    table: Table
    left_out: int


@dataclass(frozen=True)
class Report:
    """Everything, with its sources."""

    title: str
    sources: Sequence[Source]
    overviews: Sequence[Overview]
    chapters: Sequence[Chapter]


def report(sources: Sequence[Source], comparisons: Sequence[Comparison], progress: Progress) -> Report:
    """Make an overview of each data set with several comparisons, and a chapter of each comparison, up to `MOST`."""
    datasets = list(dict.fromkeys(comparison.dataset for comparison in comparisons))
    shown = comparisons[:MOST]
    overviews = []
    for number, dataset in enumerate(datasets, 1):
        choices = [comparison for comparison in comparisons if comparison.dataset == dataset]
        if len(choices) > 1:
            left_out = len([each for each in choices if not any(each is other for other in shown)])
            overviews.append(Overview(f"overview-{number}", f"{dataset}: all choices", common_facts(choices),
                                      telling(pareto_figure(choices)), choices_table(choices), left_out))
    chapters = []
    for number, comparison in enumerate(shown, 1):
        chapters.append(chapter(comparison, f"part-{number}"))
        progress(number, len(shown))
    return Report(f"What each group pays for privacy: {', '.join(datasets)}", sources, overviews, chapters)


def _of_figures(comparison: Comparison) -> list[Figure | Table | None]:
    """Return what shows how good the models are."""
    several = len(comparison.methods) > 1 and comparison.seeds > 1
    return [accuracy_figure(comparison), methods_table(comparison), groups_table(comparison), metrics_table(comparison),
            sites_table(comparison), telling(pareto_figure([comparison])), tests_table(comparison) if several else None]


def chapter(comparison: Comparison, name: str) -> Chapter:
    """Make the chapter of one comparison; figures in which nothing can be compared are left out."""
    parts: list[Figure | Table | None] = [*(_of_figures(comparison) if comparison.is_measured else ()),
                                          nodes_table(comparison)]
    timed = shown_in("training") if comparison.is_measured else []
    training = [telling(training_figure(comparison, metric.name)) for metric in timed]
    ledger = ledger_figure(comparison)
    tables = (ledger_by_method(comparison), ledger_by_group(comparison), ledger_by_observer(comparison))
    parts_of_ledger: list[Figure | Table | None] = [telling(ledger) if ledger else None, *tables]
    return Chapter(
        name, comparison.title, facts(comparison), found(comparison), [part for part in parts if part is not None],
        [apart(figure) for figure in training if figure is not None], bounds_figure(comparison), constants(comparison),
        [part for part in parts_of_ledger if part is not None],
        promises(comparison), foundations(comparison))


def found(comparison: Comparison) -> list[str]:
    """Return what the terminal says around its table."""
    return [*comparison.findings(), *in_words([comparison.attributes])]


def promises(comparison: Comparison) -> dict[str, list[str]]:
    """Return every different promise, with the methods that make it."""
    made: dict[str, list[str]] = {}
    for method, ledger in comparison.first_ledgers.items():
        made.setdefault(promise(ledger), []).append(method)
    return made


def foundations(comparison: Comparison) -> dict[str, list[str]]:
    """Return, by method, what its promise rests on."""
    return {method: notes(ledger, ledger.delta) for method, ledger in comparison.first_ledgers.items()}
