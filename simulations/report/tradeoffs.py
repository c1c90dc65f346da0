"""The Pareto plot: accuracy against fairness against epsilon, over all methods and choices of settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL, shown_in
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.scale import round_ticks
from simulations.results.comparison import Comparison
from simulations.statistics.over_seeds import share_over_seeds


class Outcome(NamedTuple):
    """Results of one method under one choice of settings.

    Epsilon has three digits, rounded up, since calibration meets equal targets only approximately.
    """

    method: str
    epsilon: float
    accuracy: Estimate
    parity: Mapping[str, Estimate]

    def beats(self, other: Outcome, parity: str) -> bool:
        """Say whether this is at least as good in accuracy, fairness and epsilon, and better in one of them."""
        mine, others = ((-o.accuracy.value, o.parity[parity].value, o.epsilon) for o in (self, other))
        return all(a <= b for a, b in zip(mine, others, strict=True)) and mine != others


Place = Callable[[Outcome], Point]


def outcomes(comparisons: Sequence[Comparison]) -> list[Outcome]:
    """Return the outcome of every method under every choice of settings, on one data set."""
    results = []
    for comparison in comparisons:
        for row in comparison.summary.to_dict("records"):
            runs = comparison.final.xs(row["strategy"], level="strategy")
            parity = {metric.name: share_over_seeds(list(runs[ALL, metric.name])) for metric in shown_in("front")}
            epsilon = float(up(row["epsilon"], ".3g"))
            results.append(Outcome(row["strategy"], epsilon, share_over_seeds(list(runs[ALL, "accuracy"])), parity))
    return results


def pareto_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Show accuracy against each measure of fairness, and both against epsilon; hollow if beaten in all three."""
    every = outcomes(comparisons)
    vary = differ([outcome.epsilon for outcome in every if math.isfinite(outcome.epsilon)])
    ticks, at = epsilon_axis([outcome.epsilon for outcome in every])

    def by_epsilon(outcome: Outcome) -> Point:
        """Place accuracy over epsilon."""
        return Point(Estimate(at(outcome.epsilon)), outcome.accuracy)

    fair, private = [], [Panel("accuracy against epsilon", Scale("epsilon", ticks=ticks, epsilon=True),
                               Scale("accuracy"), _series(every, every, by_epsilon))]
    for metric, label in ((each.name, each.title) for each in shown_in("front")):
        known = [outcome for outcome in every if not math.isnan(outcome.parity[metric].value)]
        front = [o for o in known if not any(other.beats(o, metric) for other in known)]

        def by_parity(outcome: Outcome, metric: str = metric) -> Point:
            """Place accuracy over the fairness metric."""
            return Point(outcome.parity[metric], outcome.accuracy, _epsilon(outcome.epsilon) if vary else "")

        def parity_by_epsilon(outcome: Outcome, metric: str = metric) -> Point:
            """Place the fairness metric over epsilon."""
            return Point(Estimate(at(outcome.epsilon)), outcome.parity[metric])

        if known:
            fair.append(Panel(f"accuracy against {label}", Scale(label), Scale("accuracy"),
                              _series(known, front, by_parity)))
            private.append(Panel(f"{label} against epsilon", Scale("epsilon", ticks=ticks, epsilon=True), Scale(label),
                                 _series(known, front, parity_by_epsilon)))
    return Figure("pareto", "Accuracy, fairness and epsilon", "Filled marks are the Pareto front: by their means, no "
                  "other is at least as accurate, as fair and as private, and better in one of these. The paired tests "
                  "say what the seeds tell apart. Parities are differences between groups: 0 is fair."
                  + " Numbers beside marks are epsilons." * vary, (*fair, *private))


def differ(epsilons: Sequence[float]) -> bool:
    """Say whether epsilons differ by more than a tenth."""
    return max(epsilons, default=0.0) > 1.1 * min(epsilons, default=0.0)


def _series(shown: Sequence[Outcome], front: Sequence[Outcome], place: Place) -> tuple[Series, ...]:
    """Return the marks of each method: filled for outcomes on the front, hollow for the others."""
    methods = list(dict.fromkeys(outcome.method for outcome in shown))
    return tuple(
        Series(method, number, points, joined=False, hollow=hollow)
        for number, method in enumerate(methods) for hollow in (True, False)
        if (points := tuple(place(o) for o in shown if o.method == method and (o in front) is not hollow)))


def epsilon_axis(shown: Sequence[float]) -> tuple[dict[float, str], Callable[[float], float]]:
    """Return the ticks of an axis of epsilons that shows infinity on the right, and where an epsilon lies on it."""
    finite = [epsilon for epsilon in shown if math.isfinite(epsilon)] or [0.0]
    room = max(max(finite) - min(finite), 0.3 * max(finite)) or 1.0
    infinity = max(finite) + 0.4 * room
    inside = [tick for tick in round_ticks(min(finite) - 0.2 * room, max(finite) + 0.2 * room) if tick >= 0]
    ticks = {tick: f"{tick:g}" for tick in inside} if max(finite) else {}
    if len(finite) < len(shown):
        ticks[infinity] = "∞"
    return ticks, lambda epsilon: epsilon if math.isfinite(epsilon) else infinity


def _epsilon(value: float) -> str:
    """Write an epsilon as a label."""
    return "∞" if math.isinf(value) else up(value, ".3g")
