"""The head of a chapter: what was run on which records, and the finding in one line."""

from __future__ import annotations

import math

from fedfair.accounting.figures import up
from fedfair.fairness.metrics import ALL
from simulations.report.comparison import Comparison
from simulations.results.measures import measures
from simulations.results.statistics import constant_models
from simulations.results.verdict import verdict


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the facts by name, those that are known: the finding, what was trained on what, and how privately."""
    summary, spent = comparison.summary, [value for value in comparison.summary["epsilon"] if math.isfinite(value)]
    epsilons = dict.fromkeys(up(value, ".3g") for value in sorted(spent))
    tested = comparison.final[ALL, "records"].min() if (ALL, "records") in comparison.final else math.nan
    numbers = {"training": float(sum(comparison.sizes.values())), "testing": float(tested)}
    known = {
        "Finding": headline(comparison), "Date": comparison.date,
        "Data": comparison.data.csv or comparison.dataset, "Label": comparison.data.label or "",
        "Favourable class": comparison.favourable.removeprefix("Favourable class: "),
        "Records": ", ".join(f"{number:,.0f} for {use}" for use, number in numbers.items() if number > 0),
        "Epsilon": _range(list(epsilons)) + (" (and without privacy)" if spent and len(spent) < len(summary) else ""),
        "Delta": _range(list(dict.fromkeys(up(value, ".6g") for value in summary["delta"]))),
        "Seeds": str(comparison.seeds)}
    return [(name, value) for name, value in known.items() if value]


def headline(comparison: Comparison) -> str:
    """Return the finding in one line: a model that predicts one class, what privacy costs, or the accuracy."""
    lines = [*constant_models(measures(comparison.final)), *verdict(comparison.final, comparison.sizes)]
    if lines:
        return lines[0]
    accuracies = comparison.final[ALL, "accuracy"].groupby(level="strategy", sort=False).mean()
    return "Accuracy " + ", ".join(f"{value:.3f} ({name})" for name, value in accuracies.items()) + "."


def _range(values: list[str]) -> str:
    """Return the first and the last of some values in words; none for no value."""
    if not values:
        return "none: nothing is private"
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"
