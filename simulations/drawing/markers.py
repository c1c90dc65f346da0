"""Markers and dashed lines that tell series apart without colours, in a panel and in a legend."""

from __future__ import annotations

from simulations.drawing.figure import Style
from simulations.drawing.svg import element, path

SWATCH = 34
"""Width of a sample in a legend."""


def swatch(place: int) -> str:
    """Draw the line and marker of a series, for a legend."""
    return element("svg", sample(place), class_="swatch", viewBox=f"0 0 {SWATCH} 14", aria_hidden="true")


def sample(place: int) -> str:
    """Draw the line and marker of series number `place`."""
    style = Style.of(place)
    line = path("M1,7H33", "line", **dash(style))
    return element("g", line, marker(style.marker, 17, 7), class_=f"c{style.colour}")


def dash(style: Style) -> dict[str, str]:
    """Return the dash pattern of a line as an attribute."""
    return {"stroke_dasharray": " ".join(map(str, style.dash))} if style.dash else {}


_SHAPES = {"square": "M-4,-4H4V4H-4Z", "triangle": "M0,-5L5,4H-5Z", "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
           "down": "M0,5L5,-4H-5Z", "plus": "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z",
           "cross": "M-4.6,-2.6L-2.6,-4.6L0,-2L2.6,-4.6L4.6,-2.6L2,0L4.6,2.6L2.6,4.6L0,2L-2.6,4.6L-4.6,2.6L-2,0Z",
           "star": "M0,-6L1.6,-1.9L6,-1.9L2.5,0.8L3.7,5L0,2.4L-3.7,5L-2.5,0.8L-6,-1.9L-1.6,-1.9Z"}


def marker(shape: str, x: float, y: float) -> str:
    """Draw a marker around a point."""
    if shape == "circle":
        return element("circle", class_="marker", cx=x, cy=y, r=4.2)
    return element("path", class_="marker", transform=f"translate({x} {y})", d=_SHAPES[shape])
