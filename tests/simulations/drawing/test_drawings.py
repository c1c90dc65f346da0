"""SVG files that stand alone: well formed, escaped, and on the scale that they claim."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pandas as pd
import pytest

from fedfair.fairness.intervals import Estimate
from simulations.benchmarks.measuring import line_chart
from simulations.drawing.figure import Figure, Panel, Point, Range, Scale, Series, decades
from simulations.drawing.svg import bar_chart, drawing, element, text
from simulations.plans.plan_files import curve_figure

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str | None]:
    return [node.text for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - our own drawing


def widths(svg: str) -> list[float]:
    return [float(node.attrib["width"]) for node in ElementTree.fromstring(svg).iter(f"{SVG}rect")]  # noqa: S314


def test_elements_escape_words_and_attributes() -> None:
    assert text("a < b", 1, 2.5, text_anchor="end") == '<text x="1" y="2.5" text-anchor="end">a &lt; b</text>'
    assert element("g", class_="c0", data_tip='"&"') == '<g class="c0" data-tip="&quot;&amp;&quot;"/>'


def test_every_bar_is_drawn_on_the_scale_of_its_panel() -> None:
    panels = {"one": {"a": Estimate(-1.0, -1.5, -0.5), "<b>": Estimate(3.0)}, "two": {"c": Estimate(300.0)}}
    drawn = bar_chart("A & B", panels)
    assert widths(drawn)[1] == pytest.approx(3 * widths(drawn)[0], abs=0.2)
    assert widths(drawn)[2] == pytest.approx(360)
    assert texts(drawn) == ["one", "a", "-1.0000", "<b>", "3.0000", "two", "c", "300"]
    assert widths(bar_chart("", {"": {"a": Estimate(0.25)}}, Range(0.0, 1.0))) == [90.0]


def test_bars_on_a_logarithmic_scale_begin_at_a_power_of_ten() -> None:
    drawn = bar_chart("ms", {"ms": {"ours": Estimate(100.0), "theirs": Estimate(1000.0)}}, decades([20.0, 1000.0]))
    assert widths(drawn) == [180.0, 360.0]
    assert decades([5.0]) == Range(0, 1, log=True)


def test_lines_name_every_series_and_both_ends_of_the_axes() -> None:
    drawn = line_chart("cost", "participants", {"ms": [(10, 3.0), (1000, 30.0)], "MiB": [(10, 0.5), (1000, 700.0)]})
    assert {"cost", "ms", "MiB", "participants", "10", "1000"} <= set(texts(drawn))


def test_a_curve_has_a_mark_for_each_point_and_a_single_point_a_line_at_its_height() -> None:
    frame = pd.DataFrame({"strategy": ["dpsgd", "dpsgd-p", "dpsgd-p"], "setting": ["", "theta", "theta"], "seed": 0,
                          "value": [math.nan, 0.1, 0.2], "demographic_parity": [0.1, 0.2, 0.3],
                          "accuracy_parity": [0.3, 0.2, 0.1], "accuracy": [0.9, 0.8, 0.7]})
    figure = curve_figure(frame)
    assert [[(len(series.points), series.level) for series in panel.series] for panel in figure.panels] == [
        [(1, True), (2, False)]] * 2
    svg = ElementTree.fromstring(drawing(figure))  # noqa: S314 - our own drawing
    assert len([node for node in svg.iter(f"{SVG}circle") if node.attrib["class"] == "hit"]) == 2 * 3
    assert {"demographic parity", "accuracy parity", "accuracy", "dpsgd", "dpsgd-p"} <= set(texts(drawing(figure)))


def test_the_fourth_panel_of_a_file_stands_below_the_first() -> None:
    panels = [Panel("", Scale(str(number)), Scale(""), (Series("a", 0, (Point(Estimate(0.0), Estimate(1.0)),)),))
              for number in range(4)]
    three, four = (ElementTree.fromstring(drawing(Figure("f", "", "", tuple(panels[:count]))))  # noqa: S314 - our own
                   for count in (3, 4))
    width, height = (float(size) for size in three.attrib["viewBox"].split()[2:])
    wide, high = (float(size) for size in four.attrib["viewBox"].split()[2:])
    assert wide == width
    assert high > 1.5 * height
    places = [node.attrib["transform"].split() for node in four.findall(f"{SVG}g")][-4:]
    assert places[3][0] == places[0][0] == "translate(0"
    assert float(places[3][1].rstrip(")")) > float(places[2][1].rstrip(")")) == float(places[0][1].rstrip(")"))
