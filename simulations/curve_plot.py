"""Curves as an SVG picture: demographic parity to the right, accuracy parity and accuracy upwards, in two panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import pandas as pd

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind people
WIDTH, HEIGHT, LEFT, TOP, GAP = 340, 260, 60, 40, 90
STYLE = "<style>text{font:12px sans-serif;fill:#888}line,path{stroke:#888;fill:none}</style>"


class Axis(NamedTuple):
    """A range of values laid over `start`..`end` pixels."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def around(values: Sequence[float], start: float, end: float) -> Axis:
        """An axis with a little room on both sides."""
        room = 0.05 * (max(values) - min(values)) or 0.01
        return Axis(max(0.0, min(values) - room), max(values) + room, start, end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values, three to eight of them."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
        return [round(place * step, 10) for place in range(math.ceil(self.low / step), int(self.high / step) + 1)]


def curve_plot(frame: pd.DataFrame) -> str:
    """The picture of a table as `simulations.plans.curves.curves` makes it, means over seeds.

    Strategies without a setting are dashed lines at the height of their single point. The dotted line marks a
    demographic parity of 0.1, as in Yang et al. 2024.
    """
    keys = ["strategy", "setting", "value"]
    means = frame.groupby(keys, dropna=False, sort=False)[["demographic_parity", "accuracy_parity", "accuracy"]].mean()
    points = means.reset_index()
    names = list(dict.fromkeys(points["strategy"]))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    panels = [_panel(points, y, colours, LEFT + place * (WIDTH + GAP))
              for place, y in enumerate(("accuracy_parity", "accuracy"))]
    legend = [f'<circle cx="{LEFT + 130 * i}" cy="16" r="5" fill="{colours[name]}"/><text x="{LEFT + 130 * i + 10}" '
              f'y="20">{escape(name)}</text>' for i, name in enumerate(names)]
    width, height = max(LEFT + 2 * WIDTH + GAP + 20, LEFT + 130 * len(names)), TOP + HEIGHT + 50
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><title>'
            f'{escape(", ".join(names))} on test data: what demographic parity costs</title>{STYLE}'
            f'{"".join(legend)}{"".join(panels)}</svg>\n')


def _panel(points: pd.DataFrame, y: str, colours: dict[str, str], left: int) -> str:
    """One pair of axes with the curves of all strategies."""
    across = Axis.around([0.1, *points["demographic_parity"]], left, left + WIDTH)
    up = Axis.around(list(points[y]), TOP + HEIGHT, TOP)
    drawn = _axes(across, up, y.replace("_", " "))
    for name, own in points.groupby("strategy", sort=False):
        places = [(across.at(a), up.at(b)) for a, b in zip(own["demographic_parity"], own[y], strict=True)]
        line = f'style="stroke:{colours[str(name)]}"'
        if len(places) == 1:
            drawn.append(f'<line x1="{across.start}" x2="{across.end}" y1="{places[0][1]}" y2="{places[0][1]}" '
                         f'stroke-dasharray="5" {line}/>')
        else:
            drawn.append(f'<path d="M{" L".join(f"{a},{b}" for a, b in places)}" {line}/>')
        drawn += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colours[str(name)]}"/>' for a, b in places]
    return "".join(drawn)


def _axes(across: Axis, up: Axis, label: str) -> list[str]:
    """The lines, ticks and labels of a panel."""
    bottom, mark = up.start, across.at(0.1)
    parts = [f'<line x1="{across.start}" x2="{across.end}" y1="{bottom}" y2="{bottom}"/>',
             f'<line x1="{across.start}" x2="{across.start}" y1="{bottom}" y2="{up.end}"/>',
             f'<line x1="{mark}" x2="{mark}" y1="{bottom}" y2="{up.end}" stroke-dasharray="2"/>',
             f'<text x="{(across.start + across.end) / 2}" y="{bottom + 36}" text-anchor="middle">demographic parity'
             f'</text><text x="{across.start}" y="{up.end - 6}" text-anchor="start">{label}</text>']
    parts += [f'<text x="{across.at(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>'
              for tick in across.ticks()]
    return parts + [f'<text x="{across.start - 6}" y="{up.at(tick) + 4}" text-anchor="end">{tick:g}</text>'
                    for tick in up.ticks()]
