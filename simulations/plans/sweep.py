"""Many experiments, described once: data sets x strategies x seeds x settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedfair.plugins.text_values import read_toml
from fedfair.protocol.fields import MOST_RUNS
from simulations.files.atomic_files import write_text
from simulations.plans.compare import experiments
from simulations.plans.kept_runs import trial_name
from simulations.plans.search import Search, refuse_other_stops
from simulations.settings.experiment import Experiment, SettingsError, in_words
from simulations.settings.presets import refuse_chosen

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
