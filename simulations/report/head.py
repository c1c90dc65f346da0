"""The head of a chapter: what was run on which records, and the finding in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fedfair.accounting.figures import up
from fedfair.fairness.metrics import ALL
from simulations.report.comparison import Comparison
from simulations.results.measures import measures
from simulations.results.statistics import constant_models
from simulations.results.verdict import verdict


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the facts by name, those that are known: the finding, what was trained on what, and how privately."""
    final = comparison.measured.final
    tested = final[ALL, "records"].min() if (ALL, "records") in final else math.nan
    numbers = {"training": float(sum(comparison.sizes.values())), "testing": float(tested)}
    known = {
        "Finding": headline(comparison), "Date": comparison.date,
        "Data": comparison.data.csv or comparison.dataset, "Label": comparison.data.label or "",
        "Favourable class": comparison.favourable.removeprefix("Favourable class: "),
        "Records": ", ".join(f"{number:,.0f} for {use}" for use, number in numbers.items() if number > 0),
        "Epsilon": _epsilons(comparison.measured.summary["epsilon"]),
        "Delta": _range(list(dict.fromkeys(up(value, ".6g") for value in comparison.measured.summary["delta"]))),
        "Seeds": str(comparison.seeds)}
    return [(name, value) for name, value in known.items() if value]


def common_facts(comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """Return what is known of several comparisons, at least one: the facts that all have, and all their epsilons."""
    known = [dict(facts(comparison)) for comparison in comparisons]
    epsilons = _epsilons(pd.concat([comparison.measured.summary["epsilon"] for comparison in comparisons]))
    common = {name: value for name, value in known[0].items() if all(other.get(name) == value for other in known)}
    return [(name, epsilons if name == "Epsilon" else common[name]) for name in known[0]
            if name in common or name == "Epsilon"]


def headline(comparison: Comparison) -> str:
    """Return the finding in one line: a model that predicts one class, what privacy costs, or the accuracy."""
    final = comparison.measured.final
    lines = [*constant_models(measures(final)), *verdict(final, comparison.sizes)]
    if lines:
        return lines[0]
    accuracies = final[ALL, "accuracy"].groupby(level="strategy", sort=False).mean()
    return "Accuracy " + ", ".join(f"{value:.3f} ({name})" for name, value in accuracies.items()) + "."


def _epsilons(values: pd.Series[float]) -> str:
    """Return the smallest and the largest epsilon in words, and whether something is not private."""
    spent = sorted(value for value in values if math.isfinite(value))
    rounded = list(dict.fromkeys(up(value, ".3g") for value in spent))
    return _range(rounded) + (" (and without privacy)" if spent and len(spent) < len(values) else "")


def _range(values: list[str]) -> str:
    """Return the first and the last of some values in words; none for no value."""
    if not values:
        return "none: nothing is private"
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"
