"""From a table and an epsilon to a model, its front, and figures that can be published."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedfair.accounting import Ledger, Release, epsilon, multiplier_of
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.selection import Charged
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.features.features import Range
from fedfair.datasets.files.chunks import hold_chunks, release_chunks
from fedfair.datasets.files.in_memory import removed_after
from fedfair.datasets.files.query import Query
from fedfair.mechanisms.randomness import SystemEntropy, random_bits, source
from fedfair.moments.heads import Constraint
from fedfair.moments.monotone import directions_of
from fedfair.moments.sums import CLASSES, SENSITIVITY
from simulations.engines.engines import Engine
from simulations.engines.run import rehearse, run
from simulations.fitting import columns as before
from simulations.fitting.budget import Budget, Needed, Spending, bins_for, chosen_delta, divided, needed, refuse_large
from simulations.fitting.kinds import Counts, Kinds, count, kinds
from simulations.fitting.private_selection import Among, Terms, among, refuse_unfit, select
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies.server.budget_shares import SPLITS

_OWN: Mapping[str, Any] = {"strategy": "moments", "features": "binned", "model": "linear", "preprocessing": "private",
                           "missing": "keep", "figures": "private", "sampling_rate": 1.0}
"""Settings that make a run a fit."""

CHOSEN = ("batch_size", "target_epsilon", "figures_epsilon", "noise_multiplier", "preprocessing_epsilon", "epochs",
          "steps", "options")
"""Settings that a fit makes itself, beside those that make a run a fit."""

_OF_FILES = ("encoding", "header_row", "separator", "sheet")
"""Settings of how a file is read, which a table in memory has none of."""

MOST_LEFT_OUT = 100_000
"""Most rows of a table that all train; leaving one of many out changes little, and takes time."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of a fit.

    Attributes:
        data: File with a table, or a folder or a pattern of files; a DataFrame of pandas or polars, a table of Arrow,
            a data set of Ray, or a `files.query.Query`, whose rows are written to a file in your cache some at a time.
            Arrays and torch data sets become one by `data_frames.frame_of` and `frame_of_dataset`. None for nodes that
            keep their files.
        label: Column with the classes; "" for that of a schema.
        group: Column with the sensitive attribute, or several, separated by commas; "" for that of a schema.
        epsilon: Epsilon that any record is kept within.
        delta: Its delta; None for `budget.default_delta`.
        gap: Largest gap between groups that is allowed; None for the most accurate model.
        constraint: Of what the gap is.
        settings: Further settings of the run, by name.
        methods: What is selected among, privately (see `candidates.METHODS`); moments alone needs no selection.
        site: Column with the site of each record, for figures by site as well; None for none.
        trials: Expected number of trials of a selection; None for `candidates.AUTO`.
        count_in: File that counts this fit with others of the same records (`spending.Spending`); None for none.
        owner: Who answers for the model, for page and card; "" for nobody.
        purpose: What it is for; "" for nothing.
        beside: Figures of another model to be shown, as `beside.read_beside` reads them; no epsilon covers them.
        monotone: Columns with numbers that the score of the favourable class rises or falls with, as "income=up".
    """

    data: Any
    label: str
    group: str
    epsilon: float = 1.0
    delta: float | None = None
    gap: float | None = None
    constraint: Constraint = "demographic_parity"
    settings: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ("moments",)
    trials: float | None = None
    site: str | None = None
    count_in: str | Path | None = None
    monotone: tuple[str, ...] = ()
    owner: str = ""
    purpose: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)

    def charge(self, delta: float) -> None:
        """Count the fit before it releases anything, if it is to be counted.

        Args:
            delta: Its delta.
        """
        if self.count_in is not None:
            Spending(Path(self.count_in)).charge(self.epsilon, delta)


@dataclass(frozen=True)
class Fitted:
    """A finished fit.

    Attributes:
        wanted: What was asked.
        result: The run, whose ledger holds all releases of the fit.
        kinds: Columns that were found to hold numbers, or dates, durations or times.
        needed: What would be enough, if noise costs accuracy since records are few; else None.
        among: What was selected among; None for moments alone.
        nodes: Number of nodes that kept their records; 0 if the fit read a table.
        counted: What noisy counts told of the columns; None for a fit over nodes.
    """

    wanted: Wanted
    result: Result
    kinds: tuple[str, ...]
    needed: Needed | None = None
    among: Among | None = None
    nodes: int = 0
    counted: Kinds | None = None


def fit(wanted: Wanted, engine: str | Engine = "local") -> Fitted:
    """Train, choose and measure within one epsilon.

    Args:
        wanted: What is asked.
        engine: Where the nodes are.

    Raises:
        ValueError: If the table or a setting cannot be used.
        FileNotFoundError: If there is no such file.
    """
    return without_records(fit_with_records(wanted, engine))


def fit_with_records(wanted: Wanted, engine: str | Engine = "local") -> Fitted:
    """Do the same, and return a fit that still has its rows, to be measured against them; nobody should keep it.

    Args:
        wanted: What is asked.
        engine: Where the nodes are.
    """
    try:
        with removed_after():
            return _fitted(_with_seed(wanted), engine)
    finally:
        release_chunks()


def _with_seed(wanted: Wanted) -> Wanted:
    """Return what is asked with a seed of the operating system's, where noise is too and no seed is given.

    Rows are dealt to the parts by it: nobody could choose rows for a part that is drawn afterwards.
    """
    if "seed" in wanted.settings or wanted.settings.get("randomness", "system") != "system":
        return wanted
    return replace(wanted, settings={**wanted.settings, "seed": int(random_bits(SystemEntropy(), 1)[0]) >> 33})


def without_records(fitted: Fitted) -> Fitted:
    """Return a fit that can be kept: without the rows of the table, and without the folder that it was in.

    Args:
        fitted: The fit.
    """
    result, data = fitted.result, fitted.wanted.data
    train, valid, test = (part.without_records() for _, part in result.data)
    parts = replace(result.data, train=train, valid=valid, test=test)
    csv = result.experiment.csv
    bare = {"csv": Path(csv).name if csv else None}
    made = result.experiment.model_copy(update=bare)
    search = result.search and result.search.bare(result.search.task.model_copy(update=bare))
    named = (Path(data).name if isinstance(data, str | Path) else
             pd.DataFrame(columns=data.columns) if isinstance(data, pd.DataFrame) else None)
    return replace(fitted, wanted=replace(fitted.wanted, data=named),
                   result=replace(result, data=parts, experiment=made, search=search))


def _fitted(wanted: Wanted, engine: str | Engine) -> Fitted:
    """Train, choose and measure."""
    selected = among(wanted.methods, wanted.trials)
    # All of epsilon stands here for target_epsilon, which follows from it below; it is part of a seeded fit's key.
    made = Experiment(**{**settings_of(wanted, _OWN), "target_epsilon": wanted.epsilon})
    assert made.target_epsilon is not None
    wanted = replace(wanted, epsilon=made.target_epsilon)  # as a number, whatever wrote it
    if selected is not None:
        refuse_unfit(made, wanted.settings, wanted.gap, selected)
    table, reading = hold_chunks(Path(str(made.csv)), made.asked), reading_as_asked(made.asked)  # the run takes it
    directed = directions_of(wanted.monotone)
    made = before.with_declared(made, table, [*directed])
    asked, commas = before.unknown_columns(made, table.names), before.may_have_commas(made, table.separator)
    if table.stated is not None:
        _refuse_large(made, wanted, table.stated, CLASSES, bool(asked))
    roles = dict.fromkeys(filter(None, (made.label, *made.attributes, made.site)))
    counts = count(table, asked, reading, commas, str(made.label), [*roles])
    _refuse_large(made, wanted, counts.records, counts.classes, bool(asked))
    if not made.bands or made.label not in made.attributes:
        made.favourable_class(counts.names)  # refuses what is no class, before anything is charged
    before.refuse_classes(made, counts.classes, wanted.gap, wanted.monotone)
    before.refuse_added(made, table.names, counts.names)
    delta = chosen_delta(wanted.delta, counts.records)
    if selected is None and "split" not in wanted.settings and _can_leave_out(made, counts):
        made = made.model_copy(update={"split": (1.0, 0.0, 0.0)})
    elif isinstance(wanted.data, Query) and "duplicates" not in wanted.settings and made.participant is None:
        made = made.model_copy(update={"duplicates": "together"})  # its rows have no places to be dealt by
    budget = divided(wanted.epsilon, delta, made.accountant, bool(asked), made.holds_out)
    identity = {name: value for name, value in made.identity().items() if name != "csv"}
    key = None if made.randomness == "system" else json.dumps(identity, sort_keys=True)
    public = {"delta": delta, "target_epsilon": budget.target_epsilon, "figures_epsilon": budget.figures_epsilon,
              "split": made.split}
    told = [name for name in directed if name in asked]
    if not (commas and made.bands):  # of a number with a comma nobody knows yet whether it is in a band
        settings = {name: value for name, value in wanted.settings.items() if name not in _OF_FILES}
        bare = before.without_records(made, table.names, counts.roles, counts.records)
        rehearse(Experiment(**{**settings_of(replace(wanted, data=bare, settings=settings), _OWN), **public,
                               "numbers": (*made.numbers, *asked)}))
    wanted.charge(delta)
    found = Kinds((), reading.decimal) if budget.kinds is None else kinds(
        counts, asked, reading, commas, budget.kinds, made.noise, source(key, "kinds"))
    found = _as_directed(found, told)
    terms = selected and Terms(selected, wanted.epsilon, delta, made.accountant, budget.released)
    noise = multiplier_of(budget.target_epsilon, delta, made.accountant) if terms is None else terms.trial().multiplier
    numbers = (*made.numbers, *found.numbers, *dict(found.quantities))
    quantities = (*(made.quantities or ()), *found.quantities)
    if "bins" not in wanted.settings:
        binned = [name for name in numbers if name not in found.switches]
        bins = _bins(made, counts.records, len(table.names), binned, noise, found.evenness)
        made = made.model_copy(update={"bins": bins})
    settings = {**settings_of(wanted, _OWN), **public, "csv": made.csv, "dataset": made.dataset, "numbers": numbers,
                "bins": made.bins, **({"without": made.without} if made.without else {}),
                **({"categorical": made.categorical} if table.listed else {}),
                **({"duplicates": made.duplicates} if isinstance(wanted.data, Query) else {}),
                **({"quantities": quantities} if found.quantities else {}), **_of_switches(made, found.switches),
                **({} if found.decimal == reading.decimal else {"decimal": found.decimal})}
    planned = Experiment(**settings)
    del table  # which may hold rows, and the run has a table of its own
    result = run(planned, engine) if terms is None else select(planned, terms, engine)
    few = _needed(result, noise, terms)
    whole = replace(result, ledger=_with_kinds(result.ledger, budget, made.holds_out))
    return Fitted(replace(wanted, delta=delta), whole, (*found.numbers, *dict(found.quantities)), few, selected,
                  counted=found)


def _refuse_large(made: Experiment, wanted: Wanted, rows: int, classes: int, has_unknown: bool) -> None:
    """Raise `ValueError` for more rows than discrete noise has room for, before anything is counted or charged."""
    if made.noise == "discrete":
        delta = chosen_delta(wanted.delta, rows)
        budget = divided(wanted.epsilon, delta, made.accountant, has_unknown, made.holds_out)
        refuse_large(rows, classes, made.split, budget, delta, made.accountant)


def _as_directed(found: Kinds, directed: Sequence[str]) -> Kinds:
    """Return what noisy counts tell, with columns of a direction as numbers that are none by them.

    Args:
        found: What they tell.
        directed: Columns with a direction, of which nothing else is known.
    """
    texts = tuple(name for name in directed if name not in (*found.numbers, *dict(found.quantities)))
    return found._replace(numbers=(*found.numbers, *texts), texts=texts,
                          measures=tuple(name for name in found.measures if name not in texts))


def _of_switches(made: Experiment, switches: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings for columns of 0 and 1: two bins each, of which nothing has to be learned.

    A column whose edges a person gave keeps those.
    """
    given = dict(made.edges or ())
    told = [name for name in switches if name not in given]
    if not told:
        return {}
    return {"ranges": (*(made.ranges or ()), *(Range(name, 0.0, 1.0) for name in told)),
            "edges": (*given.items(), *((name, (0.5,)) for name in told))}


def _bins(made: Experiment, records: int, columns: int, numbers: Sequence[str], noise: float, evenness: float | None
          ) -> int:
    """Return the number of bins of each number that the table can bear at a noise multiplier."""
    numeric = {*numbers, *(known.column for known in made.ranges or ())}
    others = columns - 1 - len(made.attributes) - len(numeric) - (made.site is not None)
    return bins_for(int(made.split[0] * records), len(numeric), others, SENSITIVITY * noise, evenness)


def _needed(result: Result, noise: float, terms: Terms | None) -> Needed | None:
    """Return what would be enough for the features of a run, whose moments have a noise multiplier."""
    train, made = result.data.train, result.experiment

    def cost(multiplier: float) -> float:
        """Return the epsilon of moments at another noise multiplier, with that of a selection."""
        release: Charged = Release(1.0, multiplier) if terms is None else terms.selection(multiplier)
        return epsilon(Counter([release]), made.delta, made.accountant)

    return needed(round(made.split[0] * train.rows), train.x.shape[1], noise, cost)


def settings_of(wanted: Wanted, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the run, but for its budget.

    Args:
        wanted: What is asked.
        own: Settings that make the run a fit.

    Raises:
        ValueError: For one that a fit makes itself.
    """
    for name, given in wanted.settings.items():
        if name in CHOSEN or given != own.get(name, given):
            raise ValueError(f"{name} is among the settings, but a fit chooses it: leave it out, or use `fedfair run`")
    data = str(wanted.data) if isinstance(wanted.data, Path) else wanted.data
    apart = {"duplicates": "apart"} if isinstance(data, Query) else {}  # until rows are held out
    named = {"csv": data, "label": wanted.label or None, "group": wanted.group or None, "site": wanted.site}
    for name, value in named.items():
        if value is not None and name in wanted.settings and (name == "csv" or wanted.settings[name] != value):
            raise ValueError(f"{name} is among the settings, but a fit is told it apart: leave it out of the settings")
    options = {"constraint": wanted.constraint, "logistic_steps": "auto",
               **({} if wanted.gap is None else {"gap": wanted.gap}),
               **({"monotone": wanted.monotone} if wanted.monotone else {})}
    return {"randomness": "system", "noise": "discrete", "dtype": "float64", **apart, **wanted.settings,
            **own,
            **{name: value for name, value in named.items() if value is not None}, "options": options}


def _can_leave_out(made: Experiment, counts: Counts) -> bool:
    """Return whether figures can be of records that are left out one by one, by what is public.

    There are two classes, a record says nothing of others, as those of one person do, and the rows are not so many that
    seven tenths of them make as good a model.
    """
    return (counts.classes == CLASSES and counts.records <= MOST_LEFT_OUT and made.participant is None
            and made.duplicates == "apart")


def _with_kinds(ledger: Ledger, budget: Budget, holds_out: bool) -> Ledger:
    """Return the ledger of a run with the release about kinds of columns, which is about all records of all parts."""
    if budget.kinds is None:
        return ledger
    ledger.record_preprocessing(Preprocessed(budget.kinds, 0.0))
    for split in SPLITS if holds_out else ():
        ledger.record_held_out(split, budget.kinds)
    return ledger
