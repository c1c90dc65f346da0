"""Columns of a summary beside accuracy and its gaps: what was measured where, other metrics, and sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedfair.fairness.metrics import ALL, GAPS, METRICS

OVERALL = ("balanced_accuracy", "auc", "brier_score", "calibration_error")
"""Metrics of which all records' mean and deviation are summed up, besides those in the table."""

BY_GROUP = (*OVERALL, "true_positive_rate")
"""Metrics whose means are summed up by group and by site."""


def further_columns(runs: pd.DataFrame, by_client: pd.DataFrame, groups: Sequence[str]) -> dict[str, Any]:
    """Return one method's further columns by name; metrics that the runs do not have are not numbers.

    Args:
        runs: Final metrics of its runs, from `simulations.results.summary.final_part`.
        by_client: Final metrics of each client of all methods, from the same; it may be empty.
        groups: Names of the groups.

    Returns:
        Columns: seeds that predict one class alone; the majority class's rate; in how many seeds each gap is known;
            further metrics of all, by group, and by site (`site_0_accuracy_mean`); the fewest test records of a group.
    """
    columns: dict[str, Any] = {}
    if (ALL, "predicted_classes") in runs:
        columns["constant_seeds"] = int((runs[ALL, "predicted_classes"] == 1).sum())
    if (ALL, "majority_rate") in runs:
        columns["majority_rate_mean"] = runs[ALL, "majority_rate"].mean()
    columns |= {f"{name}_seeds": int(runs[ALL, name].count()) for name in GAPS if (ALL, name) in runs}
    asked = [name for name in runs[ALL].columns if name not in (*METRICS, *GAPS)]
    for name in (*OVERALL, *asked):
        if (ALL, name) in runs:
            columns[f"{name}_mean"], columns[f"{name}_sd"] = runs[ALL, name].mean(), runs[ALL, name].std()
    for group in groups:
        columns |= {f"{name}_{group}_mean": runs[group, name].mean() for name in (*BY_GROUP, *asked)
                    if (group, name) in runs}
        if (group, "records") in runs:
            columns[f"test_records_{group}_min"] = int(runs[group, "records"].fillna(0).min())
    return columns | _by_client(by_client.reindex(runs.index), asked)


def _by_client(runs: pd.DataFrame, asked: Sequence[str]) -> dict[str, Any]:
    """Return the columns of each client: accuracy, other metrics, and test records."""
    columns: dict[str, Any] = {}
    clients = [client for client in runs.columns.unique("group") if client != ALL] if len(runs.columns) else []
    for client in sorted(clients, key=lambda name: int(name.rpartition(" ")[2])):
        for name in ("accuracy", *BY_GROUP, *asked, "records"):
            if (client, name) in runs and runs[client, name].notna().any():
                columns[f"{client.replace(' ', '_')}_{name}_mean"] = runs[client, name].mean()
    if clients and (ALL, "accuracy_parity") in runs:
        columns["site_accuracy_gap_mean"] = runs[ALL, "accuracy_parity"].mean()
    return columns
