"""A group made rare, at every epsilon, with every method, as runs: the configuration, the records kept, settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from fedfair.plugins.registry import unknown
from simulations.reproductions.request import EVERYTHING, Request
from simulations.reproductions.tuning import Positives
from simulations.settings.experiment import Experiment
from simulations.settings.presets import merged
from simulations.statistics.summary import REFERENCE

NAME = "surface"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))
_AT_THE_END = 1000.0  # epochs between evaluations: only the end of training decides

Shares = Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(min_length=1)]


class Method(BaseModel):
    """A method with `settings` of its own; it tries the learning rates, or `tried` values of its `option`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Mapping[str, Any] = {}
    option: str | None = None
    tried: tuple[Annotated[float, Field(gt=0)], ...] = ()


class Thinned(BaseModel):
    """A data set in which a `group` is made rare: its `shares` of the training records, and epsilons.

    A batch has a share `batch` of the training records; `learning_rates` are those that methods and the reference
    without privacy try.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    shares: Shares
    epsilons: Positives
    learning_rates: Positives
    batch: Annotated[float, Field(gt=0, le=1)]
    settings: Mapping[str, Any] = {}


class Study(BaseModel):
    """What is compared: `methods` by name, on `data` by the name of the set; a cost below `bearable` is borne.

    `settings` hold for every run; `others` are the names of data sets of the configuration that were not asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bearable: Annotated[float, Field(gt=0, lt=1)]
    seeds: Annotated[int, Field(ge=2)]
    settings: Mapping[str, Any] = {}
    data: Mapping[str, Thinned]
    methods: Mapping[str, Method]
    others: tuple[str, ...] = ()
    text: str = ""

    def tried(self, dataset: str, method: str) -> dict[float, dict[str, Any]]:
        """Return the settings that a method, or the reference, tries on a data set, by the value that it tunes."""
        own = self.methods.get(method, Method())
        if own.option is None:
            return {rate: {"learning_rate": rate} for rate in self.data[dataset].learning_rates}
        return {value: {"options": {own.option: value}} for value in own.tried}


class Entry(NamedTuple):
    """One run: its data set, share of the group, epsilon (infinity without privacy), method, tuned value, and what it
    is.
    """

    dataset: str
    share: float
    epsilon: float
    method: str
    setting: float
    experiment: Experiment


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Study:
    """Read the requested part of the configuration.

    Raises what `Request.of_data` raises.
    """
    return request.of_data(NAME, file, Study)


def kept(sizes: Mapping[str, int], group: str, share: float) -> int:
    """Return how many training records of a group to keep, all others staying, so that it has a share of them.

    Args:
        sizes: Number of training records of each group.
        group: Name of the group.
        share: Its share of the training records that are left.

    Raises:
        ValueError: For a group that is not in the data, and a share for which it has too few records.

    Examples:
        >>> kept({"women": 500, "men": 900}, "women", 0.1)
        100
    """
    if group not in sizes:
        raise unknown("group", group, sizes)
    own, records = sizes[group], sum(sizes.values())
    wanted = round(share / (1 - share) * (records - own))
    if wanted > own:
        raise ValueError(f"shares has {share:g} of group {group!r}, for which the training part has too few records of "
                         f"it: take shares of at most {math.floor(1000 * own / records) / 1000:g}")
    return wanted


def plan(study: Study, device: str) -> list[Entry]:
    """Return every run: those on the same records, which stack, one after another.

    Raises:
        ValueError: As `kept`.
    """
    return [entry for dataset in study.data for seed in range(study.seeds)
            for entry in _of_seed(study, dataset, {"device": device, "eval_every": _AT_THE_END, "dataset": dataset,
                                                   "seed": seed})]


def _of_seed(study: Study, dataset: str, settings: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the runs of one data set and seed: shares, then epsilons and methods."""
    thinned = study.data[dataset]
    shared = merged(study.settings, thinned.settings, settings)
    train = Experiment(strategy=REFERENCE, **shared).task.data().train
    sizes = dict(zip(train.names, train.group_sizes(), strict=True))
    for share in thinned.shares:
        own = kept(sizes, thinned.group, share)
        records = len(train) - sizes[thinned.group] + own
        at_share = merged(shared, {"imbalance": f"{thinned.group}:{own}",
                                   "batch_size": max(1, round(thinned.batch * records))})
        yield from _tried(study, (dataset, share, math.inf), REFERENCE, at_share)
        for epsilon in thinned.epsilons:
            for method in study.methods:
                yield from _tried(study, (dataset, share, epsilon), method,
                                  merged(at_share, {"target_epsilon": epsilon}))


def _tried(study: Study, place: tuple[str, float, float], method: str, settings: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the runs of one method over the values that it tries; `place` is data set, share and epsilon."""
    own = study.methods.get(method, Method()).settings
    for value, tuned in study.tried(place[0], method).items():
        yield Entry(*place, method, value, Experiment(strategy=method, **merged(settings, own, tuned)))
