"""The Pareto front compared with a slow definition of it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fedfair.fairness.intervals import Estimate
from simulations.report.figures import Outcome, outcomes, pareto_figure
from simulations.results.run_folder import read

few = st.sampled_from([0.0, 0.1, 0.2])


@given(st.lists(st.tuples(few, few, st.sampled_from([1.0, math.inf])), min_size=1, max_size=6))
def test_what_nobody_beats_is_on_the_front(triples: list[tuple[float, float, float]]) -> None:
    found = [Outcome("m", epsilon, Estimate(accuracy), {"p": Estimate(parity)})
             for accuracy, parity, epsilon in triples]
    for one in found:
        beaten = False
        for other in found:
            no_worse = (other.accuracy.value >= one.accuracy.value and other.parity["p"].value <= one.parity["p"].value
                        and other.epsilon <= one.epsilon)
            better = (other.accuracy.value > one.accuracy.value or other.parity["p"].value < one.parity["p"].value
                      or other.epsilon < one.epsilon)
            beaten = beaten or (no_worse and better)
        assert any(other.beats(one, "p") for other in found) == beaten


def test_every_method_under_every_choice_is_a_mark_and_infinity_has_a_place(comparison_folder, sweep_folder) -> None:
    _, swept = read([sweep_folder])
    assert [(outcome.method, outcome.epsilon) for outcome in outcomes(swept)] == [
        ("dpsgd", 2.0), ("dpsgd-f", 2.0), ("dpsgd", 8.0)]
    figure = pareto_figure(read([comparison_folder])[1])
    panel = next(panel for panel in figure.panels if panel.title == "accuracy against epsilon")
    places = {series.name: series.points[0].x.value for series in panel.series}
    assert panel.x.ticks is not None
    assert panel.x.ticks[places["sgd"]] == "∞"
    assert places["sgd"] > max(places["dpsgd"], places["dpsgd-f"])
