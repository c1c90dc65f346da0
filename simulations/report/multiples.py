"""Small multiples: where the bands of many lines would lie over each other, each line has a panel of its own."""

from __future__ import annotations

import math
from dataclasses import replace

from simulations.report.figure import Figure, Panel, Series

_BANDS = 3  # in one panel, at most
_APART = 2  # panels whose lines are drawn apart: all groups, and the smallest one


def apart(figure: Figure) -> Figure:
    """Return the figure with at most three bands in a panel.

    Panels with more lose their bands. The first two of them are drawn again, once for each line: that line with its
    band, and the others without.
    """
    crowded = [panel for panel in figure.panels if _bands(panel) > _BANDS]
    if not crowded:
        return figure
    panels = [_plain(panel) if panel in crowded else panel for panel in figure.panels]
    multiples = [_alone(panel, series) for panel in crowded[:_APART] for series in panel.series if _has_band(series)]
    return replace(figure, panels=(*panels, *multiples), caption=(
        f"{figure.caption} More than {_BANDS} bands are not drawn over each other: those of "
        f"{' and '.join(panel.title for panel in crowded[:_APART])} are in panels of their own, the others in the data "
        "of this figure."))


def _bands(panel: Panel) -> int:
    """Return how many bands a panel has."""
    return sum(map(_has_band, panel.series))


def _has_band(series: Series) -> bool:
    """Return whether a line is drawn with a band."""
    known = [point for point in series.points if not math.isnan(point.y.low)]
    return series.joined and series.band and len(known) > 1


def _plain(panel: Panel) -> Panel:
    """Return a panel without bands."""
    return replace(panel, series=tuple(replace(series, band=False) for series in panel.series))


def _alone(panel: Panel, series: Series) -> Panel:
    """Return a panel in which one line has its band, and the others have none."""
    return replace(panel, title=f"{panel.title}: {series.name}", again=True, series=tuple(
        replace(each, band=each is series, faint=each is not series) for each in panel.series))
