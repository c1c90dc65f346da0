"""The ledgers over time, and their guarantees in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedfair.accounting import Ledger
from fedfair.accounting.history import after
from fedfair.accounting.observers import OBSERVERS, Observer
from simulations.ledger_table import notes
from simulations.report.estimates import Estimate
from simulations.report.figure import Figure, Panel, Point, Scale, Series
from simulations.report.folders import Comparison
from simulations.report.tables import OBSERVER_WORDS

_POINTS = 12
Reading = Callable[[Ledger], float]
"""An epsilon of a ledger."""


def ledger_figure(comparison: Comparison) -> Figure | None:
    """Epsilon over the training: guaranteed to every record, spent by each group, and against each observer.

    By the ledger of the first seed; None if nothing is ever protected.
    """
    shares = [(place / _POINTS) ** 2 for place in range(_POINTS + 1)]  # closer at first, where epsilon grows fastest
    histories = {method: [(share, after(ledger, share)) for share in shares]
                 for method, ledger in comparison.first_ledgers.items() if math.isfinite(ledger.epsilon())}
    readings = {"guaranteed to every record": Ledger.epsilon,
                **{f"spent by group {group}": _spent_by(group) for group in comparison.sizes},
                **{f"guaranteed against {OBSERVER_WORDS[observer]}": _against(observer) for observer in OBSERVERS
                   if observer != "model"}}
    panels = [Panel(title, Scale("training done, %"), Scale("epsilon"), lines)
              for title, reading in readings.items() if (lines := _lines(comparison, histories, reading))]
    if not panels:
        return None
    return Figure("ledger", "The ledger during the training", "Epsilon of what had been released, at the delta of the "
                  "run, by the first seed's ledger. Where a line or a panel is missing, nothing protects.",
                  tuple(panels), same="y")


def _spent_by(group: str) -> Reading:
    """What a record of a group has spent."""
    return lambda ledger: ledger.epsilon_by_group()[group]


def _against(observer: Observer) -> Reading:
    """What any record is guaranteed against an observer."""
    return lambda ledger: ledger.by_observer()[observer]


def _lines(comparison: Comparison, histories: dict[str, list[tuple[float, Ledger]]], reading: Reading
           ) -> tuple[Series, ...]:
    """A line for each method whose reading stays finite."""
    lines = []
    for place, method in enumerate(comparison.methods):
        points = [Point(Estimate(100 * share), Estimate(reading(ledger)))
                  for share, ledger in histories.get(method, ())]
        if points and math.isfinite(points[-1].y.mean):
            lines.append(Series(method, place, tuple(points)))
    return tuple(lines)


def promise(ledger: Ledger) -> str:
    """What a ledger guarantees, for somebody who has never heard of epsilon."""
    epsilon = ledger.epsilon()
    if ledger.guarantee == "none":
        return f"No guarantee: {ledger.reason}. The model may reveal whether a {ledger.protects} was used."
    times = math.exp(epsilon)
    factor = f"{times:.3g} times" if times < 100 else f"{times:,.0f} times" if times < 1e7 else f"e^{epsilon:.3g} times"
    delta = f"{ledger.delta:g}".replace("e-0", "e-")
    text = (f"Adding or removing any one {ledger.protects} makes whatever can be found out from the model at most "
            f"{factor} as likely, plus a probability of {delta} (epsilon {epsilon:.3g}, delta {delta}).")
    if ledger.guarantee == "nominal":
        return f"Not proved, only nominal: {ledger.nominal}. If it held: {text}"
    return f"Proved. {text}"


def promises(comparison: Comparison) -> dict[str, list[str]]:
    """Every different promise, with the methods that make it."""
    made: dict[str, list[str]] = {}
    for method, ledger in comparison.first_ledgers.items():
        made.setdefault(promise(ledger), []).append(method)
    return made


def foundations(comparison: Comparison) -> dict[str, list[str]]:
    """By method, what its promise rests on."""
    return {method: notes(ledger) for method, ledger in comparison.first_ledgers.items()}
