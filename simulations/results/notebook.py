"""Runs as tables for notebooks: what each method gives and promises, what each group gets, and what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedfair.accounting.figures import up
from fedfair.accounting.notebook import as_html, shown
from fedfair.datasets.names import visible
from simulations.results.coverage import test_records
from simulations.results.marks import Marks
from simulations.results.measured import Measured
from simulations.results.notebook_picture import Spread, accuracy_picture

_MEASURES = ("accuracy", "accuracy_parity", "demographic_parity", "equal_opportunity", "equalised_odds",
             "privacy_cost_gap")


def runs_html(measured: Measured, notes: Sequence[str]) -> str:
    """Return the tables of runs on one data set, with what is found in sentences.

    Args:
        measured: The runs.
        notes: Further sentences.
    """
    marked, rows, seeds = measured.marks, measured.summary.to_dict("records"), int(measured.summary["seeds"].max())
    title = f"{visible(rows[0]['dataset'])}: {seeds} seed{'s, mean ± deviation' if seeds > 1 else ''}, on test records"
    tables = [_methods(rows, marked), _groups(rows, marked, measured.sizes, test_records(measured.final))]
    notes = [visible(line) for line in [*measured.statements(), *notes, *marked.legend()]]
    picture = accuracy_picture({visible(group): _accuracies(rows, group) for group in _smallest_first(measured.sizes)})
    return f"{picture}{as_html(title, tables, notes)}"


def _smallest_first(sizes: Mapping[str, int]) -> list[str]:
    """Return the names of groups by their training records."""
    return sorted(sizes, key=lambda name: sizes[name])


def _accuracies(rows: Sequence[Mapping[Any, Any]], group: str) -> dict[str, Spread]:
    """Return a group's mean accuracy and its deviation, by method."""
    name = f"accuracy_{group}"
    return {visible(row["strategy"]): (row[f"{name}_mean"], row.get(f"{name}_sd", math.nan)) for row in rows}


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
        } for group in _smallest_first(sizes)])


def _figure(row: Mapping[Any, Any], name: str, mark: str) -> str:
    """Write a mean with its deviation, alone for one seed, and with its mark."""
    mean, deviation = row[f"{name}_mean"], row.get(f"{name}_sd", math.nan)
    if math.isnan(mean):
        return "unknown"
    return f"{mean:.3f}{'' if math.isnan(deviation) else f' ± {deviation:.3f}'}{mark}"
