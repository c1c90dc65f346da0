"""Which panels of a figure say anything: those with nothing to compare are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulations.report.figure import Figure, Panel, Series

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
        places = {(point.x.mean,) if panel.x.epsilon else (point.x.mean, point.y.mean) for point in points}
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
    ours, theirs = ([(point.x.mean, point.y.mean) for point in series.points] for series in (one, other))
    if len(ours) != len(theirs):
        return False
    largest = np.nanmax(np.abs([ours, theirs]), axis=(0, 1))
    return bool(np.all(np.abs(np.subtract(ours, theirs)) <= _SAME * largest))
