"""Figures for papers: the same data drawn by matplotlib, as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import COLOURS, Figure, Panel, Range, Scale, Series, Style, ranges
from simulations.files.atomic_files import in_place

_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "down": "v", "plus": "P", "cross": "X",
            "star": "*"}
_ACROSS = 3
_COLUMNS = 4  # of the legend, at most


def needs_matplotlib() -> None:
    """Raise `ValueError` if matplotlib is not installed; called before the runs, not after them."""
    if find_spec("matplotlib") is None:
        raise ValueError("figures for papers are drawn by matplotlib, which is not installed: pip install "
                         "'fedfair[figures]'")


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write NAME.png (300 dots per inch) and NAME.svg, and return the files.

    Raises `ValueError` if matplotlib is not installed.
    """
    needs_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name, "font.size": 8}):
        down, across = math.ceil(len(figure.panels) / _ACROSS), min(_ACROSS, len(figure.panels))
        canvas = Canvas(figsize=(2.6 * across, 2.2 * down + 0.5), layout="constrained")
        places = canvas.subplots(down, across, squeeze=False).flatten()
        shared = ranges(figure.panels)
        for panel, axes in zip(figure.panels, places, strict=False):
            x, y = ranges([panel])
            _draw(panel, axes, shared[0] if figure.same == "x" else x, shared[1] if figure.same == "y" else y)
        for axes in places[len(figure.panels):]:
            axes.set_visible(False)
        _legend(canvas, places)
        files = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
        for file in files:
            with in_place(file) as new:
                canvas.savefig(new, dpi=300, format=file.suffix[1:],
                               metadata={"Date": None} if file.suffix == ".svg" else None)
    return files


def _legend(canvas: Any, places: Any) -> None:
    """Write the names of all series below the panels, in as many columns as fit; extra rows make the figure higher."""
    handles = {text: handle for axes in places for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    for columns in range(_COLUMNS, 0, -1):
        legend = canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns,
                               frameon=False)
        if columns == 1 or legend.get_window_extent().width <= canvas.bbox.width:
            break
        legend.remove()
    canvas.set_figheight(canvas.get_figheight() + 0.16 * max(0, math.ceil(len(handles) / columns) - 2))


def _draw(panel: Panel, axes: Any, x: Range, y: Range) -> None:
    """Draw one panel."""
    axes.set_title(visible(panel.title), fontsize=8)
    for scale, extent, side in ((panel.x, x, "x"), (panel.y, y, "y")):
        _scale(axes, scale, extent, side)
    for series in panel.series:
        style = Style.of(series.place)
        look = {"color": COLOURS[style.colour], "marker": _MARKERS[style.marker], "markersize": 4,
                "label": series.name}
        across, up = [p.x.value for p in series.points], [p.y.value for p in series.points]
        if series.joined:
            axes.plot(across, up, linestyle=(0, style.dash) if style.dash else "-", linewidth=1,
                      markevery=max(1, len(up) // 6), alpha=0.35 if series.faint else 1, **look)
            if series.band:
                axes.fill_between(across, [p.y.low for p in series.points], [p.y.high for p in series.points],
                                  color=look["color"], alpha=0.16, linewidth=0)
        else:
            axes.errorbar(across, up, _half([p.y for p in series.points]), _half([p.x for p in series.points]),
                          linestyle="none", markerfacecolor="none" if series.hollow else look["color"], **look)
            _labels(axes, series)
        for height in up if series.level else ():
            axes.axhline(height, linestyle="--", linewidth=1, color=look["color"])


def _scale(axes: Any, scale: Scale, extent: Range, side: str) -> None:
    """Set label, range and ticks along one side."""
    getattr(axes, f"set_{side}label")(scale.label)
    if scale.log:
        getattr(axes, f"set_{side}scale")("log")
    ends = (10**extent.low, 10**extent.high) if scale.log else (extent.low, extent.high)
    getattr(axes, f"set_{side}lim")(*ends)
    if scale.ticks is not None:
        getattr(axes, f"set_{side}ticks")(list(scale.ticks), list(scale.ticks.values()))
    if scale.guide is not None:
        {"x": axes.axvline, "y": axes.axhline}[side](scale.guide, linestyle=":", linewidth=0.8, color="0.5")


def _labels(axes: Any, series: Series) -> None:
    """Write the words beside the marks."""
    for point in series.points:
        axes.annotate(point.label, (point.x.value, point.y.value), xytext=(4, 4), textcoords="offset points",
                      fontsize=6)


def _half(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Return how far intervals reach below and above, 0 where there are none."""
    reach = [(e.value - e.low, e.high - e.value) for e in estimates]
    return [[0.0 if math.isnan(pair[end]) else pair[end] for pair in reach] for end in (0, 1)]
