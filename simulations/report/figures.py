"""The figures of comparisons, as data: accuracy by group, training curves, clip rules, trade-offs, and the ledgers.

The trade-offs are a Pareto plot: accuracy against fairness against epsilon, over all methods and choices of settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL, Metric, find, shown_in
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series, round_ticks
from simulations.report.tables import OBSERVER_WORDS
from simulations.results.comparison import Comparison
from simulations.statistics.over_seeds import of_records, over_seeds, share_over_seeds

INTERVALS = "Intervals: 95 % confidence of the mean over seeds (Student)."
_BINS = 80
_READINGS = 12  # of a ledger during the training


def accuracy_figure(comparison: Comparison) -> Figure:
    """Show test accuracy with its interval: a panel for each group, a row for each method."""
    rows = {method: float(-place) for place, method in enumerate(comparison.methods)}
    ticks = {row: method for method, row in rows.items()}

    def marks(group: str) -> tuple[Series, ...]:
        """Return one group's accuracy under each method."""
        return tuple(Series(method, place, (Point(_accuracy(comparison, method, group), Estimate(row)),), joined=False)
                     for place, (method, row) in enumerate(rows.items()))

    intervals = INTERVALS if comparison.seeds > 1 else ("One seed. Intervals: 95 % confidence for other test records "
                                                        "(Wilson); other seeds vary too.")
    panels = tuple(Panel(title, Scale("accuracy"), Scale("", ticks=ticks), marks(group))
                   for group, title in titles(comparison).items())
    return Figure("accuracy", "Accuracy of each group", f"On test records after the last round. {intervals}", panels,
                  same="x")


def training_figure(comparison: Comparison, metric: str = "accuracy") -> Figure:
    """Show a metric of the test part during the training: a panel for each group, a line for each method."""
    rows, across = _timed(comparison, "test", metric)
    rows = rows.assign(place=rows.groupby(["strategy", "seed", "group"]).cumcount())
    shown = find(metric).title
    panels = []
    for group, title in titles(comparison).items():
        of_group = rows[rows["group"] == group]
        panels.append(Panel(title, Scale(across), Scale(shown), tuple(
            Series(method, number, tuple(_evaluations(of_group[of_group["strategy"] == method], find(metric))))
            for number, method in enumerate(comparison.methods))))
    return Figure(f"training-{metric}", f"{shown[0].upper()}{shown[1:]} of each group during the training",
                  f"On test records. {INTERVALS if comparison.seeds > 1 else 'One seed.'}", tuple(panels), same="y")


def bounds_figure(comparison: Comparison) -> Figure | None:
    """Show the numbers of clip rules that changed: their median, and their range over seeds and neighbouring rounds.

    A panel for each number and group, a line for each method that changed it; None if no number changed.
    """
    rows, across = _timed(comparison, "rule")
    changed = rows.groupby(["strategy", "metric"])["round"].transform("nunique") > 1
    panels: dict[tuple[str, str], list[Series]] = {}
    for key, values in rows[changed].groupby(["metric", "group", "strategy"], sort=False):
        metric, group, method = map(str, key)
        line = Series(method, comparison.methods.index(method), tuple(_binned(values)))
        panels.setdefault((NUMBERS.get(metric, metric), group), []).append(line)
    if not panels:
        return None
    return Figure("bounds", "Clip norms and bounds during the training",
                  "Median, and range over seeds and neighbouring rounds. All are post-processing of noisy counts, and "
                  "cost nothing beyond what the ledger holds.",
                  tuple(Panel(number if group == ALL else f"{number}, group {group}", Scale(across),
                              Scale(number, log=True), tuple(lines)) for (number, group), lines in panels.items()))


NUMBERS = {"clip_norms": "clip norm", "clip_norm": "clip norm", "bound": "bound Z", "weights": "weight of a group"}
"""Names of a clip rule's numbers in words (see `fedfair.mechanisms.clipping`)."""


def constants(comparison: Comparison) -> list[str]:
    """Describe the numbers of clip rules that never changed."""
    rows = comparison.metrics[comparison.metrics["split"] == "rule"]
    sentences = []
    for key, numbers in rows.groupby(["strategy", "metric"], sort=False):
        method, metric = map(str, key)
        if numbers["round"].nunique() == 1:
            values = ", ".join(f"{value:g}" for value in numbers["value"].unique())
            sentences.append(f"{method}: {NUMBERS.get(metric, metric)} {values}")
    return sentences


def titles(comparison: Comparison) -> dict[str, str]:
    """Return the titles of groups: all, then each with the number of its training records, the smallest first."""
    return {ALL: "all groups", **{group: f"{group} ({size:,} records)" if size else group
                                  for group, size in comparison.sizes.items()}}


def _accuracy(comparison: Comparison, method: str, group: str) -> Estimate:
    """Return the test accuracy of a group over seeds, or over records for a single seed."""
    runs = comparison.final.xs(method, level="strategy")
    if len(runs) > 1:
        return share_over_seeds(list(runs[group, "accuracy"]))
    return of_records(float(runs[group, "accuracy"].iloc[0]), float(runs[group, "records"].iloc[0]))


def _timed(comparison: Comparison, split: str, metric: str | None = None) -> tuple[pd.DataFrame, str]:
    """Return rows with their time, `now`, and the label of the time axis.

    Time is in rounds if all runs have about equally many, else in percent of the training.
    """
    every = comparison.metrics
    last = every.groupby(["strategy", "seed"])["round"].transform("max")
    same = last.max() <= 1.02 * last.min()
    rows = every.assign(now=every["round"] if same else 100 * every["round"] / last.clip(lower=1))
    rows = rows[rows["split"] == split]
    return rows if metric is None else rows[rows["metric"] == metric], "round" if same else "training done, %"


def _evaluations(rows: pd.DataFrame, metric: Metric) -> Iterator[Point]:
    """Yield one method's evaluations of a group over seeds, in order."""
    for _, values in rows.groupby("place"):
        yield Point(Estimate(float(values["now"].mean())), over_seeds(list(values["value"]), metric.least, metric.most))


def _binned(rows: pd.DataFrame) -> Iterator[Point]:
    """Yield one number of one method's rule in at most 80 parts of the training, from rows that say when it changed."""
    wide = rows.pivot_table(index="now", columns="seed", values="value").ffill()
    times, numbers = wide.index.to_numpy(float), wide.to_numpy(float)
    for part in np.array_split(np.arange(len(wide)), min(_BINS, len(wide))):
        values = numbers[part]
        yield Point(Estimate(float(times[part].mean())),
                    Estimate(float(np.nanmedian(values)), float(np.nanmin(values)), float(np.nanmax(values))))


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


def ledger_figure(comparison: Comparison) -> Figure | None:
    """Show epsilon during the training: guaranteed to every record, spent by each group, and against each observer.

    By the ledger of the first seed; None if no method protects anything.
    """
    shares = [(place / _READINGS) ** 2 for place in range(_READINGS + 1)]  # closer at first: epsilon grows fastest
    histories = {method: [_readings(ledger.after(share)) for share in shares]
                 for method, ledger in comparison.first_ledgers.items() if math.isfinite(ledger.epsilon())}
    titles = list(next(iter(histories.values()))[0]) if histories else []
    panels = [Panel(title, Scale("training done, %"), Scale("epsilon", epsilon=True), lines)
              for title in titles if (lines := _ledger_lines(comparison, shares, histories, title))]
    if not panels:
        return None
    return Figure("ledger", "The ledger during the training", "Epsilon of what had been released, at the delta of the "
                  "run, by the first seed's ledger. A missing line or panel means no protection.",
                  tuple(panels), same="y")


def _readings(ledger: Ledger) -> dict[str, float]:
    """Return every epsilon that is drawn, by the title of its panel."""
    return {"guaranteed to every record": ledger.epsilon(),
            **{f"spent by group {group}": spent for group, spent in ledger.epsilon_by_group().items()},
            **{f"guaranteed against {OBSERVER_WORDS[observer]}": epsilon
               for observer, epsilon in ledger.by_observer().items() if observer != "model"}}


def _ledger_lines(comparison: Comparison, shares: Sequence[float],
                  histories: Mapping[str, Sequence[Mapping[str, float]]], title: str) -> tuple[Series, ...]:
    """Return a line for each method whose reading stays finite."""
    lines = []
    for place, method in enumerate(comparison.methods):
        readings = [reading[title] for reading in histories.get(method, ())]
        if readings and math.isfinite(readings[-1]):
            points = [Point(Estimate(100 * share), Estimate(reading))
                      for share, reading in zip(shares, readings, strict=True)]
            lines.append(Series(method, place, tuple(points)))
    return tuple(lines)
