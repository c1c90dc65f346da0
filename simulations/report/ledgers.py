"""The ledgers over time, and their guarantees in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.report.tables import OBSERVER_WORDS
from simulations.results.comparison import Comparison
from simulations.results.ledger_table import notes

_POINTS = 12


def ledger_figure(comparison: Comparison) -> Figure | None:
    """Show epsilon during the training: guaranteed to every record, spent by each group, and against each observer.

    By the ledger of the first seed; None if no method protects anything.
    """
    shares = [(place / _POINTS) ** 2 for place in range(_POINTS + 1)]  # closer at first: epsilon grows fastest
    histories = {method: [_readings(ledger.after(share)) for share in shares]
                 for method, ledger in comparison.first_ledgers.items() if math.isfinite(ledger.epsilon())}
    titles = list(next(iter(histories.values()))[0]) if histories else []
    panels = [Panel(title, Scale("training done, %"), Scale("epsilon", epsilon=True), lines)
              for title in titles if (lines := _lines(comparison, shares, histories, title))]
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


def _lines(comparison: Comparison, shares: Sequence[float], histories: Mapping[str, Sequence[Mapping[str, float]]],
           title: str) -> tuple[Series, ...]:
    """Return a line for each method whose reading stays finite."""
    lines = []
    for place, method in enumerate(comparison.methods):
        readings = [reading[title] for reading in histories.get(method, ())]
        if readings and math.isfinite(readings[-1]):
            points = [Point(Estimate(100 * share), Estimate(reading))
                      for share, reading in zip(shares, readings, strict=True)]
            lines.append(Series(method, place, tuple(points)))
    return tuple(lines)


def promise(ledger: Ledger) -> str:
    """Say what a ledger guarantees, for a reader who does not know epsilon."""
    epsilon = ledger.epsilon()
    if ledger.guarantee == "none":
        return f"No guarantee: {ledger.reason}. The model may reveal whether a {ledger.protects} was used."
    delta = up(ledger.delta, ".6g").replace("e-0", "e-")
    text = (f"Adding or removing any one {ledger.protects} makes whatever can be found out from the model at most "
            f"{_factor(epsilon)} as likely, plus a probability of {delta} (epsilon {up(epsilon, '.3g')}, "
            f"delta {delta}).")
    if ledger.guarantee == "nominal":
        return f"Not proved, only nominal: {ledger.nominal}. If it held: {text}"
    if ledger.guarantee == "simulated":
        return f"Simulated, not proved: {ledger.simulated}. Then: {text}"
    return f"Proved. {text}"


def _factor(epsilon: float) -> str:
    """Write e^epsilon, rounded up as every figure that is promised."""
    if epsilon > math.log(1e7):
        return f"e^{up(epsilon, '.3g')} times"
    times = math.exp(epsilon)
    return f"{up(times, '.3g')} times" if times < 100 else f"{math.ceil(times):,} times"


def promises(comparison: Comparison) -> dict[str, list[str]]:
    """Return every different promise, with the methods that make it."""
    made: dict[str, list[str]] = {}
    for method, ledger in comparison.first_ledgers.items():
        made.setdefault(promise(ledger), []).append(method)
    return made


def foundations(comparison: Comparison) -> dict[str, list[str]]:
    """Return, by method, what its promise rests on."""
    return {method: notes(ledger, ledger.delta) for method, ledger in comparison.first_ledgers.items()}
