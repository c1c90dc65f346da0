"""All that is said of a comparison, in order: the terminal, the JSON and the report say the same.

Notes below a comparison's table: on its epsilons, deltas and thresholds.

Whether the model has the sensitive attributes as features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.accounting.ledger_words import delta_warning
from fedfair.datasets import Parts
from fedfair.fairness.group_counts import favourable_of
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment
from simulations.statistics.coverage import coverage
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import constant_models, findings
from simulations.statistics.verdict import verdict


def large_deltas(ledgers: Iterable[Ledger]) -> list[str]:
    """Warn, once for each, of deltas that are above one over the number of training records."""
    warnings = dict.fromkeys(delta_warning(ledger) for ledger in ledgers)
    return [f"Warning: {warning}." for warning in warnings if warning]


def unequal_epsilons(summary: pd.DataFrame) -> Sequence[str]:
    """Warn if the largest finite epsilon is more than a tenth above the smallest."""
    spent = [epsilon for epsilon in summary["epsilon"] if math.isfinite(epsilon)]
    if max(spent, default=0) <= 1.1 * min(spent, default=0):
        return []
    return ["Epsilon differs between methods: set target_epsilon to compare them at the same epsilon."]


def searched(summary: pd.DataFrame) -> Sequence[str]:
    """Say what the search for thresholds cost the validation records: their epsilon is not that of the table."""
    spent = summary.set_index("strategy")["validation_epsilon"]
    plain, noisy = spent[spent.map(math.isinf)], spent[spent.map(math.isfinite) & (spent > 0)]
    lines = [f"The thresholds of {', '.join(plain.index)} were searched on validation data, which is not protected: "
             "set threshold_epsilon to protect it."] if len(plain) else []
    for name, epsilon in noisy.items():
        lines.append(f"The threshold of {name} was searched on validation data, at an epsilon of {up(epsilon, '.2f')} "
                     "for its records.")
    return lines


def statements(final: pd.DataFrame, tested: pd.DataFrame, summary: pd.DataFrame, sizes: dict[str, int],
               ledgers: Iterable[Ledger]) -> list[str]:
    """Return sentences on the runs of one data set: models that predict one class come first.

    Args:
        final: Final metrics, from `simulations.statistics.summary.final_test`.
        tested: Their tests, from `simulations.statistics.over_seeds.comparisons`.
        summary: Their summary, from `simulations.statistics.summary.summarise`.
        sizes: Training records by group.
        ledgers: Ledgers of the runs.
    """
    measured = measures(final)
    constant = constant_models(measured)
    return [*constant, *verdict(final, sizes), *findings(measured, tested)[len(constant):], *coverage(final),
            *unequal_epsilons(summary), *searched(summary), *large_deltas(ledgers)]


def favourable_class(made: Experiment, data: Parts) -> str:
    """Say which class is favourable in a run."""
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


def attributes_used(task: Task, columns: Iterable[str]) -> dict[str, bool]:
    """Say of each sensitive attribute whether it is a feature; empty for records that are no rows of a table.

    Args:
        task: Settings of the run.
        columns: Columns that features are made of, one for each feature.
    """
    features = {*columns}
    return {name: name in features for name in task.attribute_columns} if features else {}


def in_words(uses: Iterable[Mapping[str, bool]]) -> list[str]:
    """Say it once for each attribute and use, with the option that changes it.

    Args:
        uses: What `attributes_used` returned, by model.
    """
    return list(dict.fromkeys(
        f"The sensitive attribute {name} is {'a' if used else 'not a'} feature of the model; "
        f"--{'no-' if used else ''}attribute-in-model changes that." for each in uses for name, used in each.items()))
