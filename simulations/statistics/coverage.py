"""What the test records can tell: groups without records or without a label, and groups with few."""

from __future__ import annotations

import pandas as pd

from fedfair.fairness.metrics import ALL

FEW = 30
"""Test records below which a group's rates are doubtful."""


def test_records(final: pd.DataFrame) -> dict[str, int]:
    """Count the test records of each group: the fewest over the seeds.

    Args:
        final: Final metrics, from `simulations.statistics.summary.final_test`.

    Returns:
        Numbers by group; empty if none were kept.
    """
    groups = [group for group in final.columns.unique("group") if group != ALL and (group, "records") in final]
    return {str(group): int(final[group, "records"].fillna(0).min()) for group in groups}


test_records.__test__ = False  # type: ignore[attr-defined]  # no test for pytest


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
