"""Bands of many lines do not lie over each other."""

from __future__ import annotations

import pytest

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series, apart
from simulations.drawing.svg import drawn


def figure(lines: int, groups: int = 3) -> Figure:
    """Return a figure with as many lines with bands in each panel."""
    series = tuple(Series(f"method {place}", place, tuple(
        Point(Estimate(float(x)), Estimate(0.5 + x / 9, 0.4, 0.9)) for x in range(3))) for place in range(lines))
    return Figure("f", "F", "Caption.", tuple(Panel(f"group {number}", Scale("round"), Scale("accuracy"), series)
                                              for number in range(groups)), same="y")


def bands(svg: str) -> int:
    return svg.count('class="band"')


def test_up_to_three_bands_stay_in_one_panel() -> None:
    assert apart(figure(3)) is not None
    assert apart(figure(3)) == figure(3)
    assert [bands(svg) for svg in drawn(figure(3), "a")] == [3, 3, 3]


@pytest.mark.parametrize("lines", [4, 7])
def test_more_are_drawn_one_to_a_panel_beside_the_others_as_lines(lines: int) -> None:
    made = apart(figure(lines))
    assert [bands(svg) for svg in drawn(made, "a")] == [0, 0, 0, *[1] * 2 * lines]
    assert made.panels[3].title == "group 0: method 0"
    assert drawn(made, "a")[3].count(" faint") == lines - 1
    assert made.table().rows == figure(lines).table().rows
    assert made.panels[3].words().startswith("method 0 ")
    assert ";" not in made.panels[3].words()
    assert "group 0 and group 1" in made.caption
