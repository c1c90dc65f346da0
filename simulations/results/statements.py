"""All that is said of a comparison, in order: the terminal, the JSON and the report say the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.datasets import Parts
from fedfair.fairness.score_sums import favourable_of
from simulations.results.coverage import coverage
from simulations.results.measures import measures
from simulations.results.statistics import constant_models, findings
from simulations.results.table_notes import large_deltas, searched, unequal_epsilons
from simulations.results.verdict import verdict
from simulations.settings.experiment import Experiment


def statements(final: pd.DataFrame, tested: pd.DataFrame, summary: pd.DataFrame, sizes: dict[str, int],
               ledgers: Iterable[Ledger]) -> list[str]:
    """Return sentences on the runs of one data set: models that predict one class come first.

    Args:
        final: Final metrics, from `simulations.results.summary.final_test`.
        tested: Their tests, from `simulations.results.paired_tests.comparisons`.
        summary: Their summary, from `simulations.results.summary.summarise`.
        sizes: Training records by group.
        ledgers: Ledgers of the runs.
    """
    measured = measures(final)
    constant = constant_models(measured)
    return [*constant, *verdict(final, sizes), *findings(measured, tested)[len(constant):], *coverage(final),
            *unequal_epsilons(summary), *searched(summary), *large_deltas(ledgers)]


def favourable_class(made: Experiment, data: Parts) -> str:
    """Say which class is favourable in a run.

    Args:
        made: What was run.
        data: Its records.
    """
    labels, chosen = data.train.labels, made.favourable_class(data.train.labels)
    return favourable_sentence(labels, favourable_of(chosen, len(labels)), chosen is not None, made.label)


def favourable_sentence(labels: Sequence[str], favourable: int | None, named: bool, column: str | None = None) -> str:
    """Say which class is favourable.

    Args:
        labels: Names of the classes.
        favourable: Number of the favourable class; None for none.
        named: Whether the settings name it.
        column: Column of the labels, if it is known.
    """
    if favourable is None:
        return (f"Favourable class: none of the {len(labels)} is named, so rates of favourable decisions are unknown; "
                "set favourable to name one.")
    of = f" of {column}" if column else ""
    name = repr(labels[favourable])
    return (f"Favourable class: {name}{of}: rates say how often {name} is decided"
            f"{'' if named else '; set favourable to choose another'}.")
