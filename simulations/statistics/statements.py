"""All that is said of a comparison, in order: the terminal, the JSON and the report say the same.

Which group loses most under privacy, and which method recovers it, only as far as the seeds tell; what the test records
can tell; notes on epsilons, deltas and thresholds; whether the model has the sensitive attributes as features.
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
from fedfair.fairness.metrics import ALL
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment
from simulations.statistics.measures import FEW, measures, test_records
from simulations.statistics.over_seeds import LEVEL, constant_models, constant_runs, findings, holm, wilcoxon_less
from simulations.statistics.summary import REFERENCE, is_reference, privacy_costs

PLAIN = "dpsgd"
"""The method whose cost others may recover."""


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


def verdict(final: pd.DataFrame, sizes: dict[str, int]) -> list[str]:
    """Say which group loses how much under dpsgd, and which method loses less.

    A superlative needs seeds that tell it from every alternative: one-sided Wilcoxon tests paired by seed, whose
    largest p-value, times the number of candidates, is below 0.05.

    Args:
        final: Final metrics of runs on one data set, from `simulations.statistics.summary.final_test`.
        sizes: Training records by group; 0 where the numbers are not public.

    Returns:
        Sentences; none without sgd and dpsgd, if sgd predicts one class alone, or if no group's cost is known.
    """
    strategies, constant = set(final.index.unique("strategy")), constant_runs(measures(final))
    if not {REFERENCE, PLAIN} <= strategies or REFERENCE in constant:
        return []
    costs = privacy_costs(final).drop(columns=ALL, errors="ignore").reindex(columns=list(sizes))
    paid = costs[costs.index.get_level_values("strategy") == PLAIN].dropna(axis=1, how="all")
    if paid.empty:
        return []
    group, runs = str(paid.mean().idxmax()), len(paid)
    over = f" on average over {runs} seeds" if runs > 1 else ""
    if paid[group].mean() <= 0:
        which = " that has test records" if paid.shape[1] < len(sizes) else ""
        return [f"Under {PLAIN} no group{which} has a lower accuracy than under {REFERENCE}{over}: the least change is "
                f"{-paid[group].mean() + 0.0:.3f}, of group {group}."]
    before = final.xs(REFERENCE, level="strategy")[group, "accuracy"].mean()
    held = f" ({sizes[group]:,} of {sum(sizes.values()):,} records)" if sizes[group] else ""
    lost = (f"Under {PLAIN}, group {group}{held} loses {paid[group].mean():.3f} of its accuracy{over}, from "
            f"{before:.3f} under {REFERENCE}")
    others = [name for name in strategies if not is_reference(name) and name != PLAIN and name not in constant]
    of_group = costs[group].droplevel(0).unstack("strategy")[[PLAIN, *sorted(others)]].dropna(axis=1, how="all")
    return [lost + _more_than_others(-paid, group, runs) + ".", *_recovered(of_group)]


def _is_least(values: pd.DataFrame, name: str) -> bool:
    """Return whether the seeds tell that one column is smaller than every other, whichever was to be named.

    Args:
        values: Values with a row for each seed and a column for each candidate.
        name: Column that may be the smallest.

    Returns:
        True if each of the other columns is told from it, after a correction for the number of candidates.
    """
    others = [str(column) for column in values if column != name]
    return bool(others) and len(values.columns) * max(_p(values, name, other) for other in others) < LEVEL


def _p(values: pd.DataFrame, smaller: str, larger: str) -> float:
    """Return the p-value of one column being smaller than another, over the seeds that both have."""
    both = values[[smaller, larger]].dropna()
    return wilcoxon_less(list(both[smaller]), list(both[larger]))


def _more_than_others(gained: pd.DataFrame, group: str, runs: int) -> str:
    """Return the end of the sentence on the group with the largest mean loss."""
    if gained.shape[1] < 2:
        return ""
    if _is_least(gained, group):
        return ", more than any other group"
    return (f"; {_seeds(runs)} cannot tell which group loses most")


def _recovered(costs: pd.DataFrame) -> Sequence[str]:
    """Say which method loses less than dpsgd, by the costs of one group: a row for each seed, a column for each."""
    others = [str(name) for name in costs if name != PLAIN]
    if not others:
        return []
    back = {name: (costs[PLAIN] - costs[name]).mean() for name in others}
    best = max(others, key=lambda name: back[name])
    if not back[best] > 0:
        return ["No other method's mean loss there is smaller."]
    adjusted = dict(zip(others, holm([_p(costs, name, PLAIN) for name in others]), strict=True))
    if adjusted[best] >= LEVEL:
        return [f"{best}'s mean loss there is smaller by {back[best]:.3f}, which {_seeds(len(costs))} cannot tell from "
                "chance."]
    most = len(others) > 1 and _is_least(costs[others], best)
    return [f"{best} recovers {back[best]:.3f} of it{', more than any other method' * most} (Wilcoxon, Holm over "
            f"{len(others)} test{'s' * (len(others) > 1)}, {len(costs)} seeds, p < {LEVEL})."]


def _seeds(number: int) -> str:
    """Return a number of seeds in words."""
    return f"{number} seeds" if number > 1 else "one seed"


def coverage(final: pd.DataFrame) -> list[str]:
    """Say which gaps are not over all groups and seeds, and which groups have few test records.

    Args:
        final: Final metrics of runs on one data set, from `simulations.statistics.summary.final_test`.
    """
    if final[ALL, "accuracy"].isna().all():
        return ['Nothing was measured, as figures = "none" asks: how good the models are is unknown.']
    records = test_records(final)
    runs = final.groupby(level="seed").first() if records else final  # of equal records with every method
    lines = [*_absent(runs, records), *_odds(runs, records)]
    few = [f"{name} ({number})" for name, number in records.items() if 0 < number < FEW]
    if few:
        lines.append(f"Caution: fewer than {FEW} test records in group {', '.join(few)}.")
    return lines


def _absent(runs: pd.DataFrame, records: dict[str, int]) -> list[str]:
    """Say which groups have no test record in how many seeds."""
    lines = []
    for group in records:
        empty = int((runs[group, "records"].fillna(0) == 0).sum())
        if empty == len(runs):
            lines.append(f"The cost of group {group} is unknown: it has no test record. So are equalised odds, and "
                         "gaps are between the other groups.")
        elif empty:
            lines.append(f"Group {group} has no test record in {_of(empty, runs)}: what it pays there and equalised "
                         "odds are unknown, and gaps are between the other groups.")
    return lines


def _odds(runs: pd.DataFrame, records: dict[str, int]) -> list[str]:
    """Say where equalised odds and equal opportunity miss a rate of a group."""
    lines = []
    for metric, label, gap in (("true_positive_rate", "a favourable", "Equal opportunity is without it, and equalised "
                                "odds is unknown"),
                               ("false_positive_rate", "another", "Equalised odds is unknown")):
        if (ALL, metric) not in runs or runs[ALL, metric].isna().all():
            continue
        lacking = [group for group in records if (runs[group, metric].isna() & (runs[group, "records"] > 0)).any()]
        if lacking:
            counts = ", ".join(f"{group} ({records[group]} test records)" for group in lacking)
            seeds = int(runs[[(group, metric) for group in lacking]].isna().any(axis=1).sum())
            lines.append(f"{gap} in {_of(seeds, runs)}: no test record with {label} label in group {counts}.")
    return lines


def _of(number: int, runs: pd.DataFrame) -> str:
    """Return how many of the seeds in words."""
    return f"{number} of {len(runs)} seed{'s' * (len(runs) > 1)}"
