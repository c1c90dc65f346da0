"""A sweep's results as tables: one row for each comparison's strategy, and one for each trial.

What an experiment will have released once it has ended, known before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger
from simulations.engines.engines import make_engine
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.kept_runs import stopped, trial_name
from simulations.plans.plan_files import QUOTED, SWEEP, write_listing
from simulations.plans.search import Search, Spent, cost
from simulations.plans.sweep import Cell, Sweep
from simulations.plans.sweep import trials as trials_of
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment
from simulations.statistics.summary import summarise
from strategies import find_strategy
from strategies.server.releases.preprocessing import planned
from strategies.server.replies.requests import population
from strategies.server.rounds import Rounds
from strategies.server.state import charge_held_out


def planned_ledger(experiment: Experiment) -> Ledger:
    """Return the ledger of all rounds, with the noise that is fixed in advance.

    Its `epsilon` is that of the finished run, or more where the run keeps to a budget. Where its guarantee is "nominal"
    it may be less: noise that stays at the base clip norm is planned for that norm, whatever norms come. Reads the
    data, but trains nothing. Raises `ValueError` or `OSError` where the experiment could not begin.
    """
    sizes = make_engine("local")(lambda grid: population(grid, experiment.task))
    rounds = Rounds(find_strategy(experiment.strategy)(
        experiment.task, experiment.training, sizes, preprocessing=planned(experiment.task, experiment.training)))
    if rounds.rounds:
        for event, steps, first in rounds.method.plan(0).charges(sizes.sizes):
            rounds.ledger.record(event, steps * rounds.rounds, first)
        charge_held_out(rounds)
    return rounds.ledger


def collect(sweep: Sweep, folder: Path, failed: Mapping[str, str]) -> pd.DataFrame:
    """Write summary.csv, trials.csv, files.json, and after a search search.json, from the trials' folders.

    Return the summary. A strategy's row covers the finished seeds; varied settings have a column each.
    """
    cells = list(sweep.cells())
    summaries = [_summary(cell, folder / "trials") for cell in cells]
    summary = pd.concat(summaries, ignore_index=True) if summaries else pd.DataFrame()
    write_text(folder / "summary.csv", to_csv(summary))
    trials = pd.DataFrame([_row(cell, made, folder / "trials", failed) for cell in cells for made in cell.experiments])
    write_text(folder / "trials.csv", to_csv(trials))
    if sweep.search is not None:
        best = _best(sweep.search, cells, trials, folder / "trials")
        write_json(folder / "search.json", best)
    quoted = any(name in failed and made.exact_figures for name, made in trials_of(sweep).items())
    write_listing(folder, {**SWEEP, **(QUOTED if quoted else {})})
    return summary


def _summary(cell: Cell, folder: Path) -> pd.DataFrame:
    """Summarise one comparison's finished trials, the chosen settings in front."""
    metrics: list[pd.DataFrame] = []
    ledgers: dict[tuple[str, str, int], Ledger] = {}
    for made in cell.experiments:
        trial = RunFolder(folder / trial_name(made))
        if trial.is_finished:
            metrics.append(trial.metrics)
            ledgers[made.key] = trial.ledgers[""]
    if not metrics:
        return pd.DataFrame()
    table = summarise(pd.concat(metrics), ledgers)
    chosen = pd.DataFrame({name: [value] * len(table) for name, value in cell.chosen.items()})
    return pd.concat([chosen, table.drop(columns=list(chosen), errors="ignore")], axis=1)


def _row(cell: Cell, made: Experiment, folder: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """Describe one trial: its settings, how it ended, and its headline figures."""
    name = trial_name(made)
    row = {"trial": name, "dataset": made.dataset, "strategy": made.strategy, "seed": made.seed, **cell.chosen}
    reached = stopped(folder / name)
    if reached is not None:
        return {**row, "ended": f"stopped at {reached.percent:.0f} %", "epsilon": reached.epsilon,
                "delta": reached.delta}
    if name in failed:
        why = failed[name] if made.exact_figures else "failed: the command printed why, which may quote records"
        return {**row, "ended": why, **_at_most(made, failed[name])}
    trial = RunFolder(folder / name)
    if not trial.is_finished:
        return {**row, "ended": "not run"}
    figures = trial.table("summary.csv").iloc[0]
    return {**row, "ended": "finished", **{figure: figures[figure] for figure in (
        "epsilon", "delta", "accuracy_mean", "accuracy_parity_mean", "demographic_parity_mean")}}


def _at_most(made: Experiment, reason: str) -> dict[str, float]:
    """Bound what a failed trial can have released: all that was planned, since its last rounds left no ledger.

    Nothing if its error kept it from beginning. An infinite epsilon if the plan proves nothing, or cannot be made for
    another reason.
    """
    try:
        planned = planned_ledger(made)
    except Exception as error:
        return {} if str(error) in reason else {"epsilon": math.inf, "delta": made.delta}
    known = planned.guarantee in ("proved", "simulated")
    return {"epsilon": planned.epsilon() if known else math.inf, "delta": planned.delta}


def _best(search: Search, cells: list[Cell], trials: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Find the best trial by its validation metric, and add what the search cost."""
    drawn = {trial_name(made): dict(cell.chosen) for cell in cells for made in cell.experiments}
    values = {name: value for name in drawn if (value := _validated(search, folder / name)) is not None}
    spent = {row["trial"]: Spent(row["epsilon"], row["delta"], stopped(folder / row["trial"]) is not None)
             for row in trials.to_dict("records") if "epsilon" in row and row["epsilon"] >= 0}
    costs = cost(list(spent.values()))
    if not values:
        return {"best": None, **costs}
    best = (max if search.mode == "max" else min)(values, key=lambda name: values[name])
    return {"best": best, "settings": drawn[best], "value": values[best],
            "value_is": f"{search.metric} of {search.group} on the validation part",
            "epsilon_of_the_best_run": spent[best].epsilon, **costs}


def _validated(search: Search, folder: Path) -> float | None:
    """Return a finished trial's final metric on the validation part; None if it is not finished, or not a number."""
    if not (folder / "metrics.parquet").is_file():
        return None
    rows = RunFolder(folder).metrics
    rows = rows[(rows["split"] == "valid") & (rows["metric"] == search.metric) & (rows["group"] == search.group)]
    value = math.nan if rows.empty else float(rows.sort_values("round")["value"].iloc[-1])
    return None if math.isnan(value) else value
