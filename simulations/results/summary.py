"""From long metrics of several seeds to one row for each data set and strategy."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL

REFERENCE = "sgd"
REFERENCES = {"fedavg": "fedavg", "dp-fedavg": "fedavg"}
"""The reference of strategies whose participants train by themselves: another optimisation, so another reference."""
TAU = 0.05
"""The largest gap between the groups' privacy costs that counts as equal cost (Xu et al. 2021, section 6.1.4)."""
DIGITS = 12
"""Of differences between shares: what rounding makes of equal ones is no difference."""
_OVERALL = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds", "loss")


def at_most(gap: float, tau: float) -> bool:
    """Whether a gap is at most tau; that between .90 and .85 is at most .05."""
    return round(gap, DIGITS) <= tau


def final_part(metrics: pd.DataFrame, split: str) -> pd.DataFrame:
    """One part's rows of each run's last round, one column for each (group, metric); one row for each run."""
    part = metrics[metrics["split"] == split]
    runs = ["dataset", "strategy", "seed"]
    last = part[part["round"] == part.groupby(runs)["round"].transform("max")]
    return last.set_index([*runs, "group", "metric"])["value"].unstack(["group", "metric"]).sort_index(axis=1)


def final_test(metrics: pd.DataFrame) -> pd.DataFrame:
    """`final_part` of the test part."""
    return final_part(metrics, "test")


def is_reference(strategy: str) -> bool:
    """Whether a strategy is what others are measured against, under its own name or called after its folder."""
    return strategy.partition(" ")[0] in (REFERENCE, *REFERENCES.values())


def reference(strategy: str, strategies: Collection[str]) -> str:
    """What a strategy is measured against: `REFERENCE`, or see `REFERENCES`.

    For one that is called after its folder, "dpsgd (longer)", that is the folder's own reference, "sgd (longer)", if it
    is among `strategies`.
    """
    method, _, folder = strategy.partition(" ")
    plain = REFERENCES.get(method, REFERENCE)
    own = f"{plain} {folder}"
    return own if own in strategies else plain


def against_reference(final: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Each run's metric by group, less that of its `reference` on the same data set and seed; not a number where the
    reference did not run.
    """
    values = final.loc[:, final.columns.get_level_values("metric") == metric].droplevel("metric", axis=1)
    strategies = values.index.unique("strategy")
    same_run = pd.MultiIndex.from_tuples([(dataset, reference(strategy, strategies), seed)
                                          for dataset, strategy, seed in values.index], names=values.index.names)
    return pd.DataFrame(values.to_numpy() - values.reindex(same_run).to_numpy(), values.index, values.columns)


def privacy_costs(final: pd.DataFrame) -> pd.DataFrame:
    """By how much each run's accuracy is below its reference's, by group; see `against_reference`."""
    return -against_reference(final, "accuracy")


def excessive_risks(final: pd.DataFrame) -> pd.DataFrame:
    """By how much each run's loss is above its reference's, by group; see `against_reference`."""
    return against_reference(final, "loss")


def gap(by_group: pd.DataFrame) -> pd.Series[float]:
    """The largest difference between two groups in each row, not a number for fewer than two that are numbers; the
    column "all" is left out.
    """
    groups = by_group.drop(columns=ALL, errors="ignore")
    return (groups.max(axis=1) - groups.min(axis=1)).where(groups.count(axis=1) > 1)


def summarise(metrics: pd.DataFrame, ledgers: Mapping[tuple[Any, ...], Ledger]) -> pd.DataFrame:
    """Means and standard deviations (n - 1) over seeds, from metrics with columns dataset, strategy, seed.

    Epsilon is the largest over the seeds; that of validation records is 0 unless a threshold was looked for on them,
    and infinite if that was done without noise. Metrics are those of the test part after the last round.
    """
    final = final_test(metrics)
    costs, risks = privacy_costs(final), excessive_risks(final)
    rows = []
    for (dataset, strategy), runs in final.groupby(level=["dataset", "strategy"], sort=False):
        own = [ledger for (d, s, _), ledger in ledgers.items() if (d, s) == (dataset, strategy)]
        row: dict[str, Any] = {"dataset": dataset, "strategy": strategy, "seeds": len(runs),
                               "epsilon": max(ledger.epsilon() for ledger in own), "delta": own[0].delta,
                               "guarantee": own[0].guarantee,
                               "validation_epsilon": max(ledger.validation_epsilon() for ledger in own)}
        for metric in _OVERALL:
            row[f"{metric}_mean"], row[f"{metric}_sd"] = runs[ALL, metric].mean(), runs[ALL, metric].std()
        paid = costs.loc[runs.index]
        for group in own[0].groups:
            row[f"accuracy_{group}_mean"] = runs[group, "accuracy"].mean()
            row[f"accuracy_{group}_sd"] = runs[group, "accuracy"].std()
            row[f"privacy_cost_{group}_mean"] = paid[group].mean()
            row[f"excessive_risk_{group}_mean"] = risks.loc[runs.index, group].mean()
        cost_gap = gap(paid).mean()
        row["privacy_cost_gap_mean"], row["excessive_risk_gap_mean"] = cost_gap, gap(risks.loc[runs.index]).mean()
        row["equal_cost"] = None if math.isnan(cost_gap) else at_most(cost_gap, TAU)
        rows.append(row)
    order = list(dict.fromkeys(strategy for _, strategy, _ in ledgers))
    return pd.DataFrame(rows).sort_values("strategy", key=lambda s: s.map(order.index), kind="stable",
                                          ignore_index=True)
