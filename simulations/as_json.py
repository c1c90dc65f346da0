"""Results for scripts: what the terminal's table says, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulations.results.atomic_files import in_json
from simulations.results.result import Result, identified, summary
from simulations.results.statistics import comparisons, findings, measures
from simulations.results.summary import final_test


def as_json(results: Sequence[Result], folder: Path | None = None) -> str:
    """An object with `summary` (a row for each strategy, see `simulations.results.summary`), `findings` (sentences) and
    `folder` (where the results are, or null).

    JSON has no infinity: an epsilon that does not exist is null, and its guarantee "none".
    """
    measured = measures(final_test(identified(results)))
    return in_json({"summary": summary(results).to_dict("records"),
                    "findings": findings(measured, comparisons(measured)),
                    "folder": None if folder is None else str(folder)})
