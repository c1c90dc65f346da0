"""Runs as tables for notebooks: what each method gives and promises, what each group gets, and what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.accounting.notebook import as_html, shown
from fedfair.datasets.names import visible
from simulations.results.coverage import test_records
from simulations.results.marks import Marks, marks
from simulations.results.measures import measures
from simulations.results.paired_tests import comparisons
from simulations.results.statements import statements
from simulations.results.summary import final_test, summarise

_MEASURES = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds",
             "privacy_cost_gap")


def runs_html(metrics: pd.DataFrame, ledgers: Mapping[tuple[str, str, int], Ledger], sizes: dict[str, int],
              notes: Sequence[str]) -> str:
    """Return the tables of runs on one data set, with what is found in sentences.

    Args:
        metrics: Long table of all runs, with columns dataset, strategy and seed.
        ledgers: Ledgers by (dataset, strategy, seed).
        sizes: Training records by group.
        notes: Further sentences.
    """
    final, summary = final_test(metrics), summarise(metrics, ledgers)
    tested = comparisons(measures(final))
    marked = marks(final, tested)
    rows, seeds = summary.to_dict("records"), int(summary["seeds"].max())
    title = f"{visible(rows[0]['dataset'])}: {seeds} seed{'s, mean ± deviation' if seeds > 1 else ''}, on test records"
    found = statements(final, tested, summary, sizes, ledgers.values())
    return as_html(title, [_methods(rows, marked), _groups(rows, marked, sizes, test_records(final))],
                   [visible(line) for line in [*found, *notes, *marked.legend()]])


def _methods(rows: Sequence[Mapping[Any, Any]], marked: Marks) -> pd.DataFrame:
    """Lay out a row for each method; measures that no method has are left out."""
    known = [name for name in _MEASURES if any(not math.isnan(row[f"{name}_mean"]) for row in rows)]
    return pd.DataFrame([{
        "method": visible(row["strategy"]),
        **{name.replace("_", " "): _figure(row, name, marked.of(row["strategy"], name)) for name in known},
        "epsilon": shown(row["epsilon"]), "guarantee": row["guarantee"], "delta": up(row["delta"], ".6g"),
        "seeds": row["seeds"]} for row in rows])


def _groups(rows: Sequence[Mapping[Any, Any]], marked: Marks, sizes: Mapping[str, int], tested: Mapping[str, int]
            ) -> pd.DataFrame:
    """Lay out each method's accuracy, a row for each group, the smallest first."""
    return pd.DataFrame([{
        "group": visible(group),
        **{f"accuracy, {visible(row['strategy'])}":
           _figure(row, f"accuracy_{group}", marked.of(row["strategy"], "accuracy", group)) for row in rows},
        "training records": f"{sizes[group]:,}", "test records": f"{tested[group]:,}" if group in tested else "unknown",
        } for group in sorted(sizes, key=lambda name: sizes[name])])


def _figure(row: Mapping[Any, Any], name: str, mark: str) -> str:
    """Write a mean with its deviation, alone for one seed, and with its mark."""
    mean, deviation = row[f"{name}_mean"], row.get(f"{name}_sd", math.nan)
    if math.isnan(mean):
        return "unknown"
    return f"{mean:.3f}{'' if math.isnan(deviation) else f' ± {deviation:.3f}'}{mark}"
