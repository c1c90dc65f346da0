"""From long metrics of several seeds to one row for each data set and strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness import ALL

REFERENCE = "sgd"
REFERENCES = {"fedavg": "fedavg", "dp-fedavg": "fedavg"}
"""The reference of strategies whose participants train by themselves: another optimisation, so another reference."""
_OVERALL = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds", "loss")


def final_test(metrics: pd.DataFrame) -> pd.DataFrame:
    """The test rows of each run's last round, one column for each (group, metric); one row for each run."""
    test = metrics[metrics["split"] == "test"]
    runs = ["dataset", "strategy", "seed"]
    last = test[test["round"] == test.groupby(runs)["round"].transform("max")]
    return last.pivot_table(index=runs, columns=["group", "metric"], values="value", dropna=False)


def privacy_costs(final: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of a run's reference (`REFERENCE`, or see `REFERENCES`) less its own, by group, on the same data set and
    seed; not a number where the reference did not run.
    """
    accuracy = final.loc[:, final.columns.get_level_values("metric") == "accuracy"].droplevel("metric", axis=1)
    same_run = pd.MultiIndex.from_tuples([(dataset, REFERENCES.get(strategy, REFERENCE), seed)
                                          for dataset, strategy, seed in accuracy.index], names=accuracy.index.names)
    reference = accuracy.reindex(same_run).to_numpy()
    return pd.DataFrame(reference - accuracy.to_numpy(), accuracy.index, accuracy.columns)


def summarise(metrics: pd.DataFrame, ledgers: Mapping[tuple[Any, ...], Ledger]) -> pd.DataFrame:
    """Means and standard deviations (n - 1) over seeds, from metrics with columns dataset, strategy, seed.

    Epsilon is the largest over the seeds; that of validation records is 0 unless a threshold was looked for on them,
    and infinite if that was done without noise. Metrics are those of the test part after the last round.
    """
    final = final_test(metrics)
    costs = privacy_costs(final)
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
        spread = paid[list(own[0].groups)]
        row["privacy_cost_gap_mean"] = (spread.max(axis=1) - spread.min(axis=1)).mean()
        rows.append(row)
    order = list(dict.fromkeys(strategy for _, strategy, _ in ledgers))
    return pd.DataFrame(rows).sort_values("strategy", key=lambda s: s.map(order.index), ignore_index=True)
