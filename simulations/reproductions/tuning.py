"""A grid of settings for several methods on several data sets: what `fedfair reproduce fair-fight` compares."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulations.compare import experiments
from simulations.experiment import Experiment, SettingsError, in_words
from simulations.reproductions.request import EVERYTHING, Request
from simulations.summary import REFERENCE

NAME = "fair-fight"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))
PUBLISHED = "published"
"""The setting that is not tuned: a method's own in the preset."""
_AT_THE_END = 1000.0  # epochs between evaluations: what a method was on the way there decides nothing

Positives = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]


class Tuning(BaseModel):
    """What is compared, on which data sets, over which grid; `settings` hold for every tuned run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    learning_rates: Positives
    clip_norms: Positives
    seeds: Annotated[int, Field(ge=2)]
    settings: Mapping[str, Any] = {}
    text: str = ""


class Entry(NamedTuple):
    """One run: its data set, strategy and setting, "published" or a point of the grid in words."""

    dataset: str
    strategy: str
    setting: str
    experiment: Experiment


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Tuning:
    """What the configuration says, as far as it is asked for.

    Raises `SettingsError` for what it must not say, such as a single seed, which has no deviation, and `ValueError` for
    a data set that is not in it.
    """
    config = tomllib.loads(file.read_text())
    smaller = config.pop("quick")
    try:
        tuning = Tuning(**{**config, **(smaller if request.quick else {}),
                           **({"seeds": request.seeds} if request.seeds else {})})
    except ValidationError as error:
        raise SettingsError(f"{NAME}: {in_words(error, Tuning.model_fields)}") from None
    return tuning.model_copy(update={"datasets": request.among(tuning.datasets)})


def plan(tuning: Tuning, device: str) -> list[Entry]:
    """All runs: each method as published, then over the grid; sgd, which clips nothing, over learning rates alone."""
    entries = []
    for dataset in tuning.datasets:
        for strategy in tuning.strategies:
            clip_norms = tuning.clip_norms[:1] if strategy == REFERENCE else tuning.clip_norms
            points: dict[str, dict[str, Any]] = {PUBLISHED: {}}
            points |= {_words(strategy, rate, clip): {**tuning.settings, "learning_rate": rate, "clip_norm": clip}
                       for rate in tuning.learning_rates for clip in clip_norms}
            for setting, own in points.items():
                made = experiments([strategy], range(tuning.seeds), tuning.preset,
                                   {"dataset": dataset, "device": device, "eval_every": _AT_THE_END, **own})
                entries += [Entry(dataset, strategy, setting, experiment) for experiment in made]
    return entries


def _words(strategy: str, rate: float, clip: float) -> str:
    """A point of the grid."""
    return f"lr {rate:g}" if strategy == REFERENCE else f"lr {rate:g}, C {clip:g}"
