"""Reading the folders of runs, comparisons and sweeps."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.fairness.metrics import ALL
from fedfair.protocol.marks import marked
from fedfair.protocol.task import Task
from simulations.results.ledger_table import read_ledgers
from simulations.results.measures import measures
from simulations.results.paired_tests import comparisons
from simulations.results.summary import final_test, summarise
from simulations.settings.presets import for_strategy, merged, preset

Kind = Literal["run", "comparison", "sweep"]
Run = tuple[str, str, int]
"""Data set, method and seed."""
_DATA = tuple(marked(Task, "records"))
"""The settings that say which records are trained and tested on."""


@dataclass(frozen=True)
class Source:
    """A folder that was read: its configuration, its environment, and notes about it."""

    folder: Path
    kind: Kind
    config: str
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration's values."""
        return tomllib.loads(self.config)


@dataclass(frozen=True)
class Comparison:
    """Methods that were run on the same records with one choice of the varied settings (`chosen`).

    `data` has only the settings that choose the records. `metrics` is long (dataset, strategy, seed, round, split,
    group, metric, value); `ledgers` are by run.
    """

    dataset: str
    data: Task
    chosen: Mapping[str, Any]
    metrics: pd.DataFrame
    ledgers: Mapping[Run, Ledger]

    @property
    def title(self) -> str:
        """Title that distinguishes it from the others."""
        settings = ", ".join(f"{name} = {value}" for name, value in self.chosen.items())
        return f"{self.dataset}, {settings}" if settings else self.dataset

    @property
    def methods(self) -> list[str]:
        """Methods, in the order in which they were named."""
        return list(dict.fromkeys(method for _, method, _ in self.ledgers))

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a method."""
        return int(self.summary["seeds"].max())

    @cached_property
    def first_ledgers(self) -> dict[str, Ledger]:
        """Each method's ledger of its first seed."""
        return {method: next(ledger for (_, m, _), ledger in self.ledgers.items() if m == method)
                for method in self.methods}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Training records by group, the smallest group first."""
        rows = self.metrics.query("split == 'train' and metric == 'records' and group != @ALL",
                                  local_dict={"ALL": ALL})
        sizes = rows.groupby("group")["value"].first().astype(int).sort_values()
        return {str(group): int(size) for group, size in sizes.items()}

    @cached_property
    def final(self) -> pd.DataFrame:
        """See `simulations.results.summary.final_test`."""
        return final_test(self.metrics)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """See `simulations.results.summary.summarise`."""
        return summarise(self.metrics, self.ledgers)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """See `simulations.results.paired_tests.comparisons`."""
        return comparisons(measures(self.final))


def read(folders: Sequence[Path]) -> tuple[list[Source], list[Comparison]]:
    """Read the folders, and join runs and comparisons on the same records.

    If an earlier folder has a method of a later one with the same seed, the names of all methods of the later one also
    name their folder. Raises `FileNotFoundError` or `ValueError` for a folder that holds no finished result, or is
    named more than once.
    """
    sources, named = [], []
    for folder, name in zip(folders, _names(folders), strict=True):
        source, parts = read_folder(folder)
        sources.append(source)
        named += [(name, part) for part in parts]
    return sources, _together(named)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names without paths, numbered if equal; raises `ValueError` for a folder named twice."""
    paths = [folder.resolve() for folder in folders]
    for path, folder in zip(paths, folders, strict=True):
        if paths.count(path) > 1:
            raise ValueError(f"{folder} is named more than once: name each folder once")
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}" for i, name in enumerate(names)]


def read_folder(folder: Path) -> tuple[Source, list[Comparison]]:
    """Read one folder; raises what `read` does."""
    config = folder / "config.toml"
    if not config.is_file():
        raise FileNotFoundError(f"there is no config.toml in {folder}: give the folder of a finished run, comparison "
                                "or sweep, as --out named it")
    environment = folder / "environment.json"
    source = Source(folder, _kind(folder), config.read_text(),
                    json.loads(environment.read_text()) if environment.is_file() else {})
    if source.kind == "sweep":
        notes, parts = _sweep(folder)
        return replace(source, notes=notes), parts
    return source, [_comparison({}, [folder])]


def _kind(folder: Path) -> Kind:
    """Return the kind of a folder, by its files."""
    if (folder / "trials").is_dir():
        if not (folder / "trials.csv").is_file():
            raise FileNotFoundError(f"{folder} holds a sweep that is not finished: let fedfair sweep go on first")
        return "sweep"
    if not (folder / "metrics.parquet").is_file():
        raise FileNotFoundError(f"there is no metrics.parquet in {folder}: the run that it belongs to is not finished, "
                                "or it is no run, comparison or sweep")
    values = json.loads((folder / "ledger.json").read_text())
    return "run" if "groups" in values else "comparison"


def _comparison(chosen: Mapping[str, Any], folders: Sequence[Path]) -> Comparison:
    """Read the runs of several folders on the same records."""
    frames, ledgers = [], {}
    for folder in folders:
        frame = pd.read_parquet(folder / "metrics.parquet")
        frames.append(frame)
        saved = read_ledgers(folder)
        for dataset, strategy, seed in frame[["dataset", "strategy", "seed"]].drop_duplicates().itertuples(index=False):
            ledgers[str(dataset), str(strategy), int(seed)] = saved.get("") or saved[f"{strategy}/seed-{seed}"]
    metrics = pd.concat(frames, ignore_index=True)
    dataset = str(metrics["dataset"].iloc[0])
    return Comparison(dataset, _data(folders[0], dataset), chosen, metrics, ledgers)


def _data(folder: Path, dataset: str) -> Task:
    """Return which records a run, or the first method of a comparison, trains and tests on."""
    settings = tomllib.loads((folder / "config.toml").read_text())
    if "strategies" in settings:
        strategies, name = settings["strategies"], settings.get("preset")
        own = for_strategy(settings["settings"], strategies[0], strategies)
        layer = preset(name, None if own.get("csv") else dataset, strategies[0])
        settings = merged({"dataset": dataset}, layer, own)
    return Task(**{name: settings[name] for name in _DATA if name in settings})


def _sweep(folder: Path) -> tuple[tuple[str, ...], list[Comparison]]:
    """Return which trials of a sweep are missing, and its comparisons."""
    trials = pd.read_csv(folder / "trials.csv")
    columns = list(trials.columns)
    varied = columns[columns.index("seed") + 1 : columns.index("ended")]
    finished = trials[trials["ended"] == "finished"]
    if finished.empty:
        raise ValueError(f"no trial of the sweep in {folder} has finished: run fedfair sweep again")
    parts = []
    for key, rows in finished.groupby(["dataset", *varied], sort=False, dropna=False):
        chosen = dict(zip(varied, key[1:], strict=True))
        parts.append(_comparison(chosen, [folder / "trials" / name for name in rows["trial"]]))
    others = trials[trials["ended"] != "finished"]
    return tuple(f"not shown: {row['trial']} ({row['ended']})" for row in others.to_dict("records")), parts


def _together(named: Sequence[tuple[str, Comparison]]) -> list[Comparison]:
    """Join comparisons on the same records and choice of settings; each comes with its folder's name."""
    joined: dict[tuple[Task, str], Comparison] = {}
    for name, part in named:
        key = (part.data, repr(part.chosen))
        joined[key] = _joined(joined[key], part, name) if key in joined else part
    return [_told_apart(part, list(joined.values())) for part in joined.values()]


def _told_apart(part: Comparison, others: Sequence[Comparison]) -> Comparison:
    """Add to a comparison's choice the settings by which its records differ from those of others on its data set."""
    same = [other.data for other in others if other.dataset == part.dataset]
    differing = {name: getattr(part.data, name) for name in _DATA if len({getattr(data, name) for data in same}) > 1}
    return replace(part, chosen={**differing, **part.chosen})


def _joined(first: Comparison, second: Comparison, name: str) -> Comparison:
    """Join two comparisons' runs.

    If the first has some runs of the second, the second's methods become "method (name)", so that each stays with its
    reference (see `simulations.results.reference.reference`).
    """
    clash = first.ledgers.keys() & second.ledgers.keys()
    called = {method: f"{method} ({name})" if clash else method for method in second.methods}
    metrics = pd.concat([first.metrics, second.metrics.replace({"strategy": called})], ignore_index=True)
    renamed: Iterator[tuple[Run, Ledger]] = (((dataset, called[method], seed), ledger)
                                             for (dataset, method, seed), ledger in second.ledgers.items())
    return replace(first, metrics=metrics, ledgers={**first.ledgers, **dict(renamed)})
