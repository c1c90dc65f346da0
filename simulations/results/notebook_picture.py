"""A picture beside the tables of a notebook: each group's accuracy under each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_ROW, _LETTER, _LENGTH, _MOST = 15, 7, 300, 12
_GREY = "#888"  # readable on light and on dark ground

Spread = tuple[float, float]
"""A mean and its standard deviation, which is not a number for one run."""


def accuracy_picture(groups: Mapping[str, Mapping[str, Spread]]) -> str:
    """Draw a mark for each group and method, with a line of one deviation to either side, as SVG.

    Args:
        groups: Accuracy by group, then by method; the first twelve groups are drawn.

    Returns:
        The drawing, or "" if nothing was measured.
    """
    from simulations.report.svg import COLOURS, document, element, text  # here: the report's own start reads results

    rows: list[str] = []
    methods = list(next(iter(groups.values()), {}))
    left = 16 + _LETTER * max(map(len, methods), default=0)
    low, high = _ends([spread for of_group in groups.values() for spread in of_group.values()])
    y = 8
    for group in list(groups)[:_MOST]:
        rows.append(text(group, 8, y + 12, font_weight="bold"))
        y += 18
        for place, method in enumerate(methods):
            mean, deviation = groups[group][method]
            if not math.isnan(mean):
                reach = 0.0 if math.isnan(deviation) else deviation
                ends = [left + _LENGTH * (min(max(value, low), high) - low) / (high - low)
                        for value in (mean - reach, mean, mean + reach)]
                rows += [text(method, 16, y + 11), text(f"{mean:.3f}", left + _LENGTH + 12, y + 11),
                         element("line", x1=round(ends[0], 1), x2=round(ends[2], 1), y1=y + 7, y2=y + 7,
                                 stroke=_GREY),
                         element("circle", cx=round(ends[1], 1), cy=y + 7, r=4, fill=COLOURS[place % len(COLOURS)])]
            y += _ROW
        y += 6
    if not rows:
        return ""
    words = element("g", *rows, fill=_GREY, font_family="sans-serif", font_size=12)  # a style would be the page's too
    width = left + _LENGTH + 60
    return f'<div style="max-width:{width}px">{document("Accuracy of each group", width, y, "", words)}</div>'


def _ends(spreads: Sequence[Spread]) -> Spread:
    """Return the ends of the axis: a part of 0 to 1 that holds all marks."""
    means = [mean for mean, _ in spreads if not math.isnan(mean)]
    low, high = min(means, default=0.0), max(means, default=1.0)
    return max(0.0, low - 0.1), min(1.0, high + 0.1)
