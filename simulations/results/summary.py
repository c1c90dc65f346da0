"""From long metrics of several seeds to one row for each data set and strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL
from fedfair.protocol.messages import BY_CLIENT
from simulations.results.reference import excessive_risks, privacy_costs
from simulations.results.summary_columns import further_columns

TAU = 0.05
"""The largest gap between the groups' privacy costs that counts as equal cost (Xu et al. 2021, section 6.1.4)."""
DIGITS = 12
"""Decimals to which differences between shares are rounded, so that rounding errors do not count as differences."""
_OVERALL = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds", "loss")


def at_most(gap: float, tau: float) -> bool:
    """Return whether a gap is at most tau, up to rounding: the one between .90 and .85 is at most .05.

    Args:
        gap: Difference of two shares.
        tau: Bound on it.

    Returns:
        True if the gap is at most tau.
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
    part = metrics[metrics["split"] == split]
    runs = ["dataset", "strategy", "seed"]
    last = part[part["round"] == part.groupby(runs)["round"].transform("max")]
    return last.set_index([*runs, "group", "metric"])["value"].unstack(["group", "metric"]).sort_index(axis=1)


def final_test(metrics: pd.DataFrame) -> pd.DataFrame:
    """Select the test part's metrics of each run's last round.

    Args:
        metrics: Long metrics, see `final_part`.

    Returns:
        A table as from `final_part`.
    """
    return final_part(metrics, "test")


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
        for metric in _OVERALL:
            row[f"{metric}_mean"], row[f"{metric}_sd"] = runs[ALL, metric].mean(), runs[ALL, metric].std()
        paid = costs.loc[runs.index]
        for group in spent[0].groups:
            row[f"accuracy_{group}_mean"] = runs[group, "accuracy"].mean()
            row[f"accuracy_{group}_sd"] = runs[group, "accuracy"].std()
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
