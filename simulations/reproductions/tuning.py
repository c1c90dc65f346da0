"""The grid of settings, for several methods on several data sets, that `fedfair reproduce fair-fight` compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from simulations.plans.compare import experiments
from simulations.reproductions.request import EVERYTHING, Request
from simulations.settings.experiment import Experiment
from simulations.statistics.summary import REFERENCE

NAME = "fair-fight"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))
PUBLISHED = "published"
"""The setting that is not tuned: a method's own in the preset."""
_AT_THE_END = 1000.0  # epochs between evaluations: only the end of training decides

Positives = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]


class Tuning(BaseModel):
    """The strategies that are compared, on which data sets, over which grid; `settings` hold for every tuned run.

    A result is the mean over `seeds` seeds, of which the first `choosing_seeds` choose the setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    learning_rates: Positives
    clip_norms: Positives
    seeds: Annotated[int, Field(ge=2)]
    choosing_seeds: Annotated[int, Field(ge=1)]
    settings: Mapping[str, Any] = {}
    text: str = ""

    @property
    def choosing(self) -> range:
        """Return the seeds that choose; all of them, if there are no more."""
        return range(min(self.choosing_seeds, self.seeds))


class Entry(NamedTuple):
    """One run: its data set, strategy and setting, "published" or a point of the grid in words."""

    dataset: str
    strategy: str
    setting: str
    experiment: Experiment


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Tuning:
    """Read the requested part of the configuration.

    Raises what `Request.of_configuration` raises, and `ValueError` for a data set that is not in it.
    """
    tuning = request.of_configuration(NAME, file, Tuning)
    return tuning.model_copy(update={"datasets": request.among(tuning.datasets)})


def plan(tuning: Tuning, device: str) -> list[Entry]:
    """Return the runs that choose: each method as published, then over the grid; sgd, which clips nothing, over
    learning rates alone.
    """
    return [entry for dataset in tuning.datasets for strategy in tuning.strategies
            for setting, values in _points(tuning, strategy).items()
            for entry in _entries(tuning, device, dataset, strategy, setting, values, tuning.choosing)]


def confirm(tuning: Tuning, chosen: Iterable[tuple[str, str, str]], device: str) -> list[Entry]:
    """Return the runs that only measure: the published and the `chosen` setting of every data set and strategy, with
    the seeds that had no part in the choice.
    """
    return [entry for dataset, strategy, setting in chosen for name in (PUBLISHED, setting)
            for entry in _entries(tuning, device, dataset, strategy, name, _points(tuning, strategy)[name],
                                  range(len(tuning.choosing), tuning.seeds))]


def _points(tuning: Tuning, strategy: str) -> dict[str, dict[str, Any]]:
    """Return the settings over the preset that a strategy tries, by name."""
    clip_norms = tuning.clip_norms[:1] if strategy == REFERENCE else tuning.clip_norms
    return {PUBLISHED: {}} | {
        _words(strategy, rate, clip): {**tuning.settings, "learning_rate": rate, "clip_norm": clip}
        for rate in tuning.learning_rates for clip in clip_norms}


def _entries(tuning: Tuning, device: str, dataset: str, strategy: str, setting: str, values: Mapping[str, Any],
             seeds: range) -> list[Entry]:
    """Return the runs of one setting with some seeds."""
    made = experiments([strategy], seeds, tuning.preset,
                       {"dataset": dataset, "device": device, "eval_every": _AT_THE_END, **values})
    return [Entry(dataset, strategy, setting, experiment) for experiment in made]


def _words(strategy: str, rate: float, clip: float) -> str:
    """Return the name of a point of the grid."""
    return f"lr {rate:g}" if strategy == REFERENCE else f"lr {rate:g}, C {clip:g}"
