"""Published tables and figures as data: a CSV of cells as the paper prints them, and a TOML that says which runs they
come from and what is drawn.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fedfair.accounting import Accountant
from fedfair.datasets.published.download import data_folder
from fedfair.plugins.registry import unknown
from simulations.plans.compare import experiments
from simulations.reproductions.request import Request
from simulations.settings.experiment import Experiment
from simulations.statistics.measures import Pairs

PUBLISHED = Path(str(files("simulations") / "configs" / "published"))
COLUMNS = ["dataset", "method", "group", "metric", "published", "spread"]

Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""One name, or a list of them."""


class _Part(BaseModel):
    """A part of a description: frozen, without keys that nothing reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quick(_Part):
    """The smaller version: its description `text`, how many seeds, which of the data sets and methods (all if none is
    named), changed settings.
    """

    text: str
    seeds: Annotated[int, Field(ge=1)]
    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}


class Drawing(_Part):
    """A figure: `metric` of the part `split` ("rule" for the numbers of clip rules), for some or all `methods` and
    `groups`. Several metrics of one unit, where the rounds are shown, are lines of one panel.

    "by-group" shows every group at the end of training; "course" the rounds; "against" the end of training along
    `across`, a setting, "epsilon" or "records" (of the group, trained on), less that of the method `minus` if one is
    named. `log` concerns the vertical axis.
    """

    name: str
    title: str
    kind: Literal["by-group", "course", "against"]
    metric: Annotated[Names, Field(min_length=1)]
    split: str = "test"
    methods: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    across: str = ""
    minus: str = ""
    log: bool = False
    text: str = ""

    @model_validator(mode="after")
    def _several_metrics_are_lines_over_the_rounds(self) -> Drawing:
        """Refuse several metrics of a kind that has no lines to distinguish them."""
        if len(self.metric) > 1 and self.kind != "course":
            raise ValueError(f"figure {self.name!r} of kind {self.kind!r} shows the metrics "
                             f"{', '.join(map(repr, self.metric))}: take one, or the kind 'course'")
        return self

    @property
    def label(self) -> str:
        """Return the label of the vertical axis: the first metric's name."""
        name = self.metric[0].replace("_", " ")
        return f"{name}, less that of {self.minus}" if self.minus else name


class Note(_Part):
    """Why cells disagree: those of some data sets, methods, groups or metrics, where it names any.

    `seeds` is the largest number of seeds for which it holds. Where some notes on a cell name its metric, the others
    are left out.
    """

    text: str
    dataset: Names = ()
    method: Names = ()
    group: Names = ()
    metric: Names = ()
    seeds: int | None = None

    def concerns(self, cell: Mapping[str, Any], seeds: int) -> bool:
        """Return whether the note is about a cell with a number of seeds."""
        named = {"dataset": self.dataset, "method": self.method, "group": self.group, "metric": self.metric}
        return seeds <= (self.seeds or seeds) and all(not wanted or cell[name] in wanted
                                                      for name, wanted in named.items())


class Claim(_Part):
    """A claim of significance: each of the methods `better` is better than each of `worse` by each metric, one of
    `fedfair.fairness.metrics.METRICS`, on every data set.
    """

    better: Names
    worse: Names
    metric: Names


class Published(_Part):
    """One published table.

    `settings` win over those of `preset` in all runs; `datasets` and `methods` map the paper's names to settings that
    win over both, `missing` those that cannot be run here to the reason. A data set that `needs` a folder of
    FEDFAIR_DATA_DIR is missing where that folder is. `groups` translates the paper's group names by data set; `pairs`
    are the two groups of a gap by data set, by default all. `accountant` composes the epsilons of cells, by default
    that of the runs. `spread` is what the CSV's spreads over `published_seeds` runs are; `truncated` means that digits
    were cut off, not rounded. `percent` are the metrics printed in percent, `losses` is the part whose losses are
    printed, `orders` are the metrics by which methods are ranked, `claims` what the paper calls significant.
    `departures` are the settings that differ from the paper's, with reasons. `figures` are drawn from the same runs.
    """

    title: str
    preset: str
    seeds: Annotated[int, Field(ge=1)]
    published_seeds: Annotated[int, Field(ge=1)]
    spread: Literal["standard deviation", "standard error", "none"] = "none"
    truncated: bool = False
    percent: tuple[str, ...] = ()
    losses: Literal["train", "test"] = "test"
    orders: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    departures: tuple[str, ...] = ()
    pairs: Pairs = {}
    accountant: Accountant | None = None
    settings: Mapping[str, Any] = {}
    datasets: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, str]] = {}
    methods: Mapping[str, Mapping[str, Any]]
    missing: Mapping[str, str] = {}
    quick: Quick
    notes: tuple[Note, ...] = ()
    figures: tuple[Drawing, ...] = ()


class Planned(NamedTuple):
    """One run of a reproduction under the paper's names."""

    dataset: str
    method: str
    experiment: Experiment


def names(folder: Path = PUBLISHED) -> list[str]:
    """List the names of the published tables."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def load(name: str, folder: Path = PUBLISHED) -> tuple[Published, pd.DataFrame]:
    """Read a description, and the published cells with numbers as printed, as text: none where only figures are
    published.

    Raises `ValueError` for an unknown name.
    """
    if name not in names(folder):
        raise unknown("published table", name, names(folder))
    published = Published(**tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8")))
    cells = folder / f"{name}.csv"
    if not cells.is_file():
        return published, pd.DataFrame(columns=COLUMNS)
    return published, pd.read_csv(cells, dtype=str, keep_default_na=False)[COLUMNS]


def seeds_of(published: Published, request: Request) -> int:
    """Return how many seeds run."""
    return request.seeds or (published.quick.seeds if request.quick else published.seeds)


def plan(published: Published, request: Request) -> list[Planned]:
    """Return the runs of a table, seed by seed, so that an interrupted reproduction has whole seeds.

    Raises `ValueError` for a data set that is not in it.
    """
    quick = published.quick if request.quick else None
    changed = {**(quick.settings if quick else {}), "device": request.device}
    datasets = request.among(quick.datasets if quick and quick.datasets else tuple(published.datasets))
    planned = []
    for seed in range(seeds_of(published, request)):
        for dataset in datasets:
            if missing(published.datasets[dataset]):
                continue
            for method, of_method in published.methods.items():
                if quick and quick.methods and method not in quick.methods:
                    continue
                settings = {**published.settings, **published.datasets[dataset], **of_method, **changed}
                settings.pop("needs", None)
                strategy = settings.pop("strategy")
                planned += [Planned(dataset, method, e)
                            for e in experiments([strategy], [seed], published.preset, settings)]
    return planned


def missing(dataset: Mapping[str, Any]) -> str | None:
    """Return why a data set cannot be had: its description says so, or the folder that it needs is missing."""
    folder = dataset.get("needs")
    if folder and data_folder(folder) is None:
        return f"there is no folder {folder} in FEDFAIR_DATA_DIR"
    reason: str | None = dataset.get("missing")
    return reason


def why_missing(published: Published, cell: Mapping[str, Any]) -> str:
    """Return why a cell was not run: its data set or method cannot be had, or was not requested."""
    dataset = published.datasets[cell["dataset"]]
    return str(missing(dataset) or published.missing.get(cell["method"]) or "not asked for")
