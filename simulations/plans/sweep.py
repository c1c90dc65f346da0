"""Many experiments, described once: data sets x strategies x seeds x settings, and their results as tables.

The tables have one row for each comparison's strategy, and one for each trial. A trial that was not run has the ledger
of what it would have released, which is known before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedfair.accounting import Ledger
from fedfair.plugins.text_values import read_toml
from fedfair.protocol.fields import MOST_RUNS
from simulations.engines.engines import make_engine
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import experiments
from simulations.plans.kept_runs import stopped, trial_name
from simulations.plans.plan_files import QUOTED, SWEEP, write_listing
from simulations.plans.search import Search, Spent, cost, refuse_other_stops
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment, SettingsError, in_words
from simulations.settings.presets import refuse_chosen
from simulations.statistics.summary import summarise
from strategies import find_strategy
from strategies.server.releases.preprocessing import planned
from strategies.server.replies.requests import population
from strategies.server.rounds import Rounds
from strategies.server.state import charge_held_out

_MOST_TRIALS = 100_000

Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Cell(NamedTuple):
    """One comparison: the experiments on one data set with one choice of the varied settings."""

    dataset: str
    chosen: Mapping[str, Any]
    experiments: list[Experiment]


class Sweep(BaseModel):
    """A sweep; frozen, and validated when it is made.

    `seeds` is their number, or a list. `settings` are those of `fedfair compare --set`, also "STRATEGY.key" and
    "options.key"; `vary` gives several values to some, and every combination is run. With a `search`, settings are
    drawn instead. Raises `SettingsError` when a value is not allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    datasets: Names = ("digits",)
    strategies: Names
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    preset: str | None = None
    settings: dict[str, Any] = {}
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    search: Search | None = None

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise SettingsError(in_words(error, Sweep.model_fields)) from None

    @field_validator("seeds", mode="before")
    @classmethod
    def _number_of_seeds(cls, value: Any) -> Any:
        """Read a number n as 0, 1, ..., n - 1."""
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if value > MOST_RUNS:
            raise ValueError(f"seeds is {value}: give at most {MOST_RUNS:,}")
        return tuple(range(value))

    @model_validator(mode="after")
    def _one_of_each_in_a_search(self) -> Sweep:
        """Refuse a search over several data sets, strategies or seeds: a seed decides who trains and who validates."""
        if self.search is not None and (self.vary or max(map(len, (self.datasets, self.strategies, self.seeds))) > 1):
            raise ValueError("a search draws settings for one data set, strategy and seed: name one of each, and leave "
                             "out vary (other seeds split the records in other ways, so that one would validate on "
                             "what another trains on)")
        return self

    @model_validator(mode="after")
    def _can_be_listed(self) -> Sweep:
        """Refuse more trials than a machine can list, let alone run."""
        trials = math.prod(map(len, (self.datasets, self.strategies, self.seeds, *self.vary.values())))
        if trials > _MOST_TRIALS:
            raise ValueError(f"this sweep has {trials:,} trials: give fewer seeds or values, for at most "
                             f"{_MOST_TRIALS:,}")
        return self

    @model_validator(mode="after")
    def _nothing_is_run_twice(self) -> Sweep:
        """Refuse a seed or a value that is given twice: it would be one trial in two rows."""
        for name, values in {"seeds": self.seeds, **self.vary}.items():
            repeated = [value for index, value in enumerate(values) if value in values[:index]]
            if repeated:
                raise ValueError(f"{name} has {repeated[0]!r} twice: give each once")
        return self

    @model_validator(mode="after")
    def _data_are_named_once(self) -> Sweep:
        """Refuse data that are named twice: a cell has one data set of `datasets`, or a file."""
        given = {**self.settings, **self.vary, **(self.search.space if self.search else {})}
        refuse_chosen(given, ("dataset",))
        if "csv" in given and self.datasets != Sweep.model_fields["datasets"].default:
            raise ValueError(f"csv is given, and so is datasets, {', '.join(self.datasets)}: leave one of them out")
        return self

    @staticmethod
    def read(path: Path) -> Sweep:
        """Return the sweep that a TOML file describes; raise `SettingsError`, or `FileNotFoundError`."""
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}: give the sweep's description in TOML")
        try:
            values = read_toml(path)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return Sweep(**values)

    def to_toml(self) -> str:
        """Return the description, as `read` reads it."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def cells(self) -> Iterator[Cell]:
        """Yield all comparisons, their experiments validated; raise what `experiments` raises."""
        choices = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for dataset, chosen in product(self.datasets, choices if self.search is None else self.search.draws()):
            settings = {**self.settings, **chosen, "dataset": dataset}
            made = experiments(self.strategies, self.seeds, self.preset, settings)
            if self.search is not None and made[0].split[1] == 0:
                raise SettingsError("a search chooses by the validation part, but split is "
                                    f"{list(made[0].split)}: give that part a share, for example "
                                    "split = [0.6, 0.2, 0.2] under [settings]")
            yield Cell(dataset, chosen, made)


def trials(sweep: Sweep) -> dict[str, Experiment]:
    """Return all experiments of a sweep by name, each once, in order."""
    return {trial_name(made): made for cell in sweep.cells() for made in cell.experiments}


def prepare_folder(folder: Path, sweep: Sweep) -> int:
    """Make the sweep's folder, or check an existing one; return the number of trials of an earlier, smaller sweep that
    this one contains.

    Raises `FileExistsError` if the folder holds something else, or a sweep with trials that this one has not.
    """
    config = folder / "config.toml"
    if folder.exists() and any(folder.iterdir()):
        if not config.is_file():
            raise FileExistsError(f"{folder} exists and holds no sweep: choose another folder, or remove it")
        there = Sweep.read(config)
        return 0 if there.to_toml() == sweep.to_toml() else _extended(folder, there, sweep)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(config, sweep.to_toml())
    return 0


def _extended(folder: Path, there: Sweep, sweep: Sweep) -> int:
    """Take over a folder whose trials are all among those of `sweep`; return their number."""
    old, new = trials(there), trials(sweep)
    lost = [name for name in old if name not in new]
    if lost:
        given = [field for field in Sweep.model_fields if getattr(there, field) != getattr(sweep, field)]
        raise FileExistsError(f"{folder} holds another sweep, which differs in {', '.join(given)}: {len(lost)} of its "
                              f"{len(old)} trials are not in this one, the first is {lost[0]}; choose another folder, "
                              "or restore the description (its config.toml)")
    if there.search and sweep.search and any(folder.glob("trials/*/stopped.json")):
        refuse_other_stops(folder, there.search, sweep.search)
    write_text(folder / "config.toml", sweep.to_toml())
    return len(old)


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
    every = pd.DataFrame([_row(cell, made, folder / "trials", failed) for cell in cells for made in cell.experiments])
    write_text(folder / "trials.csv", to_csv(every))
    if sweep.search is not None:
        best = _best(sweep.search, cells, every, folder / "trials")
        write_json(folder / "search.json", best)
    quoted = any(name in failed and made.exact_figures for name, made in trials(sweep).items())
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


def _best(search: Search, cells: list[Cell], every: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Find the best trial by its validation metric, and add what the search cost."""
    drawn = {trial_name(made): dict(cell.chosen) for cell in cells for made in cell.experiments}
    values = {name: value for name in drawn if (value := _validated(search, folder / name)) is not None}
    spent = {row["trial"]: Spent(row["epsilon"], row["delta"], stopped(folder / row["trial"]) is not None)
             for row in every.to_dict("records") if "epsilon" in row and row["epsilon"] >= 0}
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
