"""From long metrics of several seeds to one row for each data set and strategy.

Columns of a summary beside accuracy and its gaps: what was measured where, other metrics, and sites.

References: the strategies that others are measured against, on the same data set and seed.

Examples:
    >>> import torch
    >>> from fedfair.fairness.group_counts import GroupCounts
    >>> from fedfair.fairness.metrics import metrics
    >>> def measured(strategy, women, men):  # decisions by label, of one seed's test part
    ...     counts = GroupCounts.of_decisions(torch.tensor([women, men]))
    ...     return [("adult", strategy, 0, 9, "test", *row) for row in metrics(counts, ("women", "men"))]
    >>> good, bad = [[9, 1], [1, 9]], [[6, 4], [2, 8]]
    >>> rows = [*measured("sgd", women=good, men=good), *measured("dpsgd", women=bad, men=good)]
    >>> columns = ["dataset", "strategy", "seed", "round", "split", "group", "metric", "value"]
    >>> runs = pd.DataFrame(rows, columns=columns)
    >>> final = final_test(runs)
    >>> final.equals(final_part(runs, "test")), [metric.name for metric in metrics_in("training", final)]
    (True, ['accuracy', 'loss'])
    >>> gap(privacy_costs(final)).round(3).to_dict()
    {('adult', 'dpsgd', 0): 0.2, ('adult', 'sgd', 0): 0.0}
    >>> excessive_risks(final).equals(against_reference(final, "loss"))
    True
    >>> ledgers = {("adult", name, 0): Ledger(("women", "men"), 1e-5) for name in ("sgd", "dpsgd")}
    >>> summarise(runs, ledgers)[["strategy", "accuracy_mean", "privacy_cost_women_mean", "equal_cost"]]
      strategy  accuracy_mean  privacy_cost_women_mean  equal_cost
    0      sgd            0.9                      0.0        True
    1    dpsgd            0.8                      0.2       False
    >>> further_columns(final, pd.DataFrame(), ("women", "men"))["test_records_women_min"]
    20
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from fedfair.accounting import LEFT_OUT, Ledger
from fedfair.fairness.metrics import ALL, METRICS, Metric, Place, find, gaps_over
from fedfair.protocol.messages import BY_CLIENT

MEASURED_ON = ("test", LEFT_OUT)
"""Parts that figures of a finished model are of: a run has one of them."""


def metrics_in(place: Place, runs: pd.DataFrame) -> list[Metric]:
    """Return the metrics that results show in a place: those of `METRICS`, then those that runs were asked for besides.

    Those that have columns of all records come first.

    Args:
        place: The place.
        runs: Final metrics, see `final_part`.
    """
    names = dict.fromkeys([*METRICS, *runs[ALL].columns])
    known = [each for each in map(find, names)
             if place in each.shown and (each.compute or each.of == "runs" or (ALL, each.name) in runs)]
    return sorted(known, key=lambda each: (each.name not in METRICS, "summary" not in each.shown))


def further_columns(runs: pd.DataFrame, by_client: pd.DataFrame, groups: Sequence[str]) -> dict[str, Any]:
    """Return one method's further columns by name; metrics that the runs do not have are not numbers.

    Args:
        runs: Final metrics of its runs, from `simulations.statistics.summary.final_part`.
        by_client: Final metrics of each client of all methods, from the same; it may be empty.
        groups: Names of the groups.

    Returns:
        Columns: seeds that predict one class alone; the majority class's rate; in how many seeds each gap is known;
            further metrics of all, by group, and by site (`site_0_accuracy_mean`); the fewest test records of a group.
    """
    columns, values = dict[str, Any](), dict(runs.items())  # many look-ups in a table take longer than all its columns
    if (ALL, "predicted_classes") in values:
        columns["constant_seeds"] = int((values[ALL, "predicted_classes"] == 1).sum())
    if (ALL, "majority_rate") in values:
        columns["majority_rate_mean"] = values[ALL, "majority_rate"].mean()
    columns |= {f"{name}_seeds": int(values[ALL, name].count()) for name in gaps_over(METRICS) if (ALL, name) in values}
    for name in (metric.name for metric in metrics_in("summary", runs) if metric.name not in _FIRST):
        if (ALL, name) in values:
            columns[f"{name}_mean"], columns[f"{name}_sd"] = values[ALL, name].mean(), values[ALL, name].std()
    by_group = [metric.name for metric in metrics_in("groups", runs)]
    for group in groups:
        columns |= {f"{name}_{group}_mean": values[group, name].mean() for name in by_group if (group, name) in values}
        if (group, "records") in values:
            columns[f"test_records_{group}_min"] = int(values[group, "records"].fillna(0).min())
    return columns | _by_client(by_client.reindex(runs.index), by_group)


def _by_client(runs: pd.DataFrame, by_group: Sequence[str]) -> dict[str, Any]:
    """Return the columns of each client: accuracy, other metrics, and test records."""
    columns: dict[str, Any] = {}
    clients = [client for client in runs.columns.unique("group") if client != ALL] if len(runs.columns) else []
    for client in sorted(clients, key=lambda name: int(name.rpartition(" ")[2])):
        for name in ("accuracy", *by_group, "records"):
            if (client, name) in runs and runs[client, name].notna().any():
                columns[f"{client.replace(' ', '_')}_{name}_mean"] = runs[client, name].mean()
    if clients and (ALL, "accuracy_parity") in runs:
        columns["site_accuracy_gap_mean"] = runs[ALL, "accuracy_parity"].mean()
    return columns


REFERENCE = "sgd"
REFERENCES = {"fedavg": "fedavg", "dp-fedavg": "fedavg"}
"""References of strategies with local epochs: their optimisation differs, and so does their reference."""


def is_reference(strategy: str) -> bool:
    """Return whether other strategies are measured against this one.

    Args:
        strategy: Name of a strategy, alone or with its folder's, "sgd (longer)".

    Returns:
        True for a reference.

    Examples:
        >>> is_reference("sgd (longer)"), is_reference("dpsgd")
        (True, False)
    """
    return strategy.partition(" ")[0] in (REFERENCE, *REFERENCES.values())


def reference(strategy: str, strategies: Collection[str]) -> str:
    """Return the strategy that a strategy is measured against.

    Args:
        strategy: Name of a strategy, alone or with its folder's, "dpsgd (longer)".
        strategies: Names of all strategies.

    Returns:
        `REFERENCE`, or the strategy's entry in `REFERENCES`; with the folder's name, "sgd (longer)", if that is among
            `strategies`.

    Examples:
        >>> reference("dpsgd (longer)", ["dpsgd (longer)", "sgd (longer)"]), reference("dp-fedavg", [])
        ('sgd (longer)', 'fedavg')
    """
    method, _, folder = strategy.partition(" ")
    plain = REFERENCES.get(method, REFERENCE)
    of_folder = f"{plain} {folder}"
    return of_folder if of_folder in strategies else plain


def against_reference(final: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Subtract each run's reference from it, on the same data set and seed.

    Args:
        final: Final metrics, from `final_part`.
        metric: Name of the metric.

    Returns:
        A row for each run and a column for each group; not a number where the reference did not run.
    """
    values = final.loc[:, final.columns.get_level_values("metric") == metric].droplevel("metric", axis=1)
    strategies = values.index.unique("strategy")
    same_run = pd.MultiIndex.from_tuples([(dataset, reference(strategy, strategies), seed)
                                          for dataset, strategy, seed in values.index], names=values.index.names)
    return pd.DataFrame(values.to_numpy() - values.reindex(same_run).to_numpy(), values.index, values.columns)


def privacy_costs(final: pd.DataFrame) -> pd.DataFrame:
    """Compute by how much each run's accuracy is below its reference's.

    Args:
        final: Final metrics, from `final_part`.

    Returns:
        A table as from `against_reference`.
    """
    return -against_reference(final, "accuracy")


def excessive_risks(final: pd.DataFrame) -> pd.DataFrame:
    """Compute by how much each run's loss is above its reference's.

    Args:
        final: Final metrics, from `final_part`.

    Returns:
        A table as from `against_reference`.
    """
    return against_reference(final, "loss")


TAU = 0.05
"""The largest gap between the groups' privacy costs that counts as equal cost (Xu et al. 2021, section 6.1.4)."""
DIGITS = 12
"""Decimals to which differences between shares are rounded, so that rounding errors do not count as differences."""
_FIRST = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds", "loss")
"""Metrics whose columns come first."""


def at_most(gap: float, tau: float) -> bool:
    """Return whether a gap is at most tau, up to rounding: the one between .90 and .85 is at most .05.

    Args:
        gap: Difference of two shares.
        tau: Bound on it.

    Examples:
        >>> 0.9 - 0.85 <= 0.05, at_most(0.9 - 0.85, 0.05)
        (False, True)
    """
    return round(gap, DIGITS) <= tau


def final_part(metrics: pd.DataFrame, split: str) -> pd.DataFrame:
    """Select one part's metrics of each run's last round.

    Args:
        metrics: Long metrics with columns dataset, strategy, seed, round, split, group, metric and value.
        split: Name of the part, for example "test".

    Returns:
        A row for each run, indexed by dataset, strategy and seed; a column for each (group, metric).
    """
    return _last(metrics[metrics["split"] == split])


def _last(part: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of each run's last round, as `final_part` does."""
    runs = ["dataset", "strategy", "seed"]
    last = part[part["round"] == part.groupby(runs)["round"].transform("max")]
    return last.set_index([*runs, "group", "metric"])["value"].unstack(["group", "metric"]).sort_index(axis=1)


def final_test(metrics: pd.DataFrame) -> pd.DataFrame:
    """Select the test part's metrics of each run's last round; of left-out records where a run held nothing out.

    Args:
        metrics: Long metrics, see `final_part`.

    Returns:
        A table as from `final_part`.
    """
    return _last(metrics[metrics["split"].isin(MEASURED_ON)])


def gap(by_group: pd.DataFrame) -> pd.Series[float]:
    """Compute the largest difference between two groups in each row.

    Args:
        by_group: Values with a column for each group; the column "all" is left out.

    Returns:
        One gap for each row; not a number if fewer than two groups have values.
    """
    groups = by_group.drop(columns=ALL, errors="ignore")
    return (groups.max(axis=1) - groups.min(axis=1)).where(groups.count(axis=1) > 1)


def summarise(metrics: pd.DataFrame, ledgers: Mapping[tuple[Any, ...], Ledger]) -> pd.DataFrame:
    """Compute means and standard deviations (n - 1) over seeds.

    Metrics are those of the test part after the last round.

    Args:
        metrics: Long metrics, see `final_part`.
        ledgers: Ledgers of the runs by (dataset, strategy, seed).

    Returns:
        A row for each data set and strategy. Epsilon is the largest over the seeds; `validation_epsilon`, that of the
            validation records, is 0 unless a threshold was searched on them, and infinite if that was done without
            noise.
    """
    final = final_test(metrics)
    by_client = final_part(metrics, f"test {BY_CLIENT}")
    costs, risks = privacy_costs(final), excessive_risks(final)
    rows = []
    for (dataset, strategy), runs in final.groupby(level=["dataset", "strategy"], sort=False):
        spent = [ledger for (d, s, _), ledger in ledgers.items() if (d, s) == (dataset, strategy)]
        row: dict[str, Any] = {"dataset": dataset, "strategy": strategy, "seeds": len(runs),
                               "epsilon": max(ledger.epsilon() for ledger in spent), "delta": spent[0].delta,
                               "guarantee": spent[0].guarantee,
                               "validation_epsilon": max(ledger.held_out_epsilon("valid") for ledger in spent)}
        for metric in _FIRST:
            each = runs[ALL, metric]
            row[f"{metric}_mean"], row[f"{metric}_sd"] = each.mean(), each.std()
        paid = costs.loc[runs.index]
        for group in spent[0].groups:
            each = runs[group, "accuracy"]
            row[f"accuracy_{group}_mean"], row[f"accuracy_{group}_sd"] = each.mean(), each.std()
            row[f"privacy_cost_{group}_mean"] = paid[group].mean()
            row[f"excessive_risk_{group}_mean"] = risks.loc[runs.index, group].mean()
        cost_gap = gap(paid).mean()
        row["privacy_cost_gap_mean"], row["excessive_risk_gap_mean"] = cost_gap, gap(risks.loc[runs.index]).mean()
        row["equal_cost"] = None if math.isnan(cost_gap) else at_most(cost_gap, TAU)
        row |= further_columns(runs, by_client, spent[0].groups)
        rows.append(row)
    order = list(dict.fromkeys(strategy for _, strategy, _ in ledgers))
    return pd.DataFrame(rows).sort_values("strategy", key=lambda s: s.map(order.index), kind="stable",
                                          ignore_index=True)
