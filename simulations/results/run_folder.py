"""Reading the folders of runs, comparisons and sweeps: each file has one reader, here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import ValidationError

from fedfair.accounting import Ledger
from fedfair.fairness.group_counts import favourable_of
from fedfair.plugins.text_values import from_toml, read_json, read_toml
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task
from simulations.files.saved_files import from_csv, other_shape, saved_table
from simulations.results.comparison import RECORDS, Comparison, Run, together
from simulations.results.model_metadata import Description, descriptions
from simulations.results.node_files import NODES_FILE
from simulations.settings.experiment import Experiment, RunKey
from simulations.settings.presets import for_strategy, merged, preset
from simulations.statistics.statements import favourable_class, favourable_sentence
from strategies.server.threshold_settings import ThresholdSettings

Kind = Literal["run", "comparison", "sweep"]

METRICS = (*RunKey._fields, "round", "split", "group", "metric", "value")
"""Columns of a table of metrics."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a finished run or comparison, whose files are read when they are asked for."""

    path: Path

    @property
    def is_finished(self) -> bool:
        """Whether it holds a result."""
        return (self.path / "summary.csv").is_file()

    @property
    def config(self) -> str:
        """The text of its configuration; raises `FileNotFoundError` if there is none."""
        file = self.path / "config.toml"
        if not file.is_file():
            raise FileNotFoundError(f"there is no config.toml in {self.path}: give the folder of a finished run, "
                                    "comparison or sweep, as --out named it")
        self._refuse_other_shape(file)
        return file.read_text(encoding="utf-8")

    def _refuse_other_shape(self, file: Path) -> None:
        """Raise `ValueError` if a configuration cannot be read, or its methods or their settings are none."""
        values = read_toml(file)
        methods, settings = values.get("strategies", [values.get("strategy")]), values.get("settings", {})
        if not (isinstance(methods, list) and methods and all(isinstance(name, str) for name in methods)
                and isinstance(settings, dict)):
            raise other_shape(file, TypeError("it should have a strategy, or strategies and settings"))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration's values."""
        return from_toml(self.config)

    @property
    def environment(self) -> dict[str, Any]:
        """What it was made with; empty if the folder does not say."""
        file = self.path / "environment.json"
        return read_json(file) if file.is_file() else {}

    @property
    def metrics(self) -> pd.DataFrame:
        """Metrics of all runs: dataset, strategy, seed, round, split, group, metric, value."""
        return saved_table(self.path / "metrics.parquet", METRICS)

    @property
    def is_comparison(self) -> bool:
        """Whether its runs have names, as those of a comparison do."""
        return "groups" not in read_json(self.path / "ledger.json")

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledger of a run (""), or those of a comparison ("strategy/seed-0"); raises `FileNotFoundError`."""
        file = self.path / "ledger.json"
        if not file.is_file():
            raise FileNotFoundError(f"there is no ledger.json in {self.path}: give the folder of a finished run")
        values = read_json(file)
        if not values:
            raise other_shape(file, TypeError("it is empty"))
        try:
            return {"": Ledger.from_dict(values)} if "groups" in values else {
                name: Ledger.from_dict(value) for name, value in values.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise other_shape(file, error) from error

    def ledgers_of(self, metrics: pd.DataFrame) -> dict[Run, Ledger]:
        """Return the ledgers of the runs that a table of metrics has."""
        saved = self.ledgers
        runs = metrics[[*RunKey._fields]].drop_duplicates().itertuples(index=False)
        keys = [RunKey(str(dataset), str(strategy), int(seed)) for dataset, strategy, seed in runs]
        absent = [key.name for key in keys if key.name not in saved and "" not in saved]
        if absent:
            raise other_shape(self.path / "ledger.json", KeyError(absent[0]))
        return {key: saved.get("") or saved[key.name] for key in keys}

    @property
    def models(self) -> dict[str, Description]:
        """Descriptions of the saved models by run; empty if none are there."""
        file = self.path / "model.safetensors"
        return descriptions(file) if file.is_file() else {}

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of the folder that is saved as CSV; empty if it is not there."""
        return from_csv(self.path / name) if (self.path / name).is_file() else pd.DataFrame()


def saved_comparison(folder: Path, planned: Sequence[Experiment]) -> Comparison:
    """Return a comparison that was saved, of planned experiments; raises `OSError` if a file is missing."""
    saved, first = RunFolder(folder), planned[0]
    ledgers: dict[Run, Ledger] = {made.key: saved.ledgers[made.key.name] for made in planned}
    data = first.task.data()
    sizes = dict(zip(data.train.names, data.train.group_sizes(), strict=True))
    return Comparison(first.dataset, first.task, saved.metrics, ledgers, list(saved.models.values()),
                      favourable=favourable_class(first, data), records=sizes)


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
        return from_toml(self.config)


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
    return sources, together(named)


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
    read = RunFolder(folder)
    config = read.config  # the first to be missing in another folder
    source = Source(folder, _kind(read), config, read.environment)
    if source.kind == "sweep":
        notes, parts = _sweep(folder)
        return replace(source, notes=notes), parts
    return source, [_comparison({}, [read])]


def _kind(folder: RunFolder) -> Kind:
    """Return the kind of a folder, by its files."""
    if (folder.path / "trials").is_dir():
        if not (folder.path / "trials.csv").is_file():
            raise FileNotFoundError(f"{folder.path} holds a sweep that is not finished: let fedfair sweep go on first")
        return "sweep"
    if not (folder.path / "metrics.parquet").is_file():
        raise FileNotFoundError(f"there is no metrics.parquet in {folder.path}: the run that it belongs to is not "
                                "finished, or it is no run, comparison or sweep")
    return "comparison" if folder.is_comparison else "run"


def _comparison(chosen: Mapping[str, Any], folders: Sequence[RunFolder]) -> Comparison:
    """Read the runs of several folders on the same records."""
    frames, ledgers = [folder.metrics for folder in folders], dict[Run, Ledger]()
    for folder, frame in zip(folders, frames, strict=True):
        ledgers |= folder.ledgers_of(frame)
    metrics, first = pd.concat(frames, ignore_index=True), folders[0]
    dataset, models = str(metrics["dataset"].iloc[0]), list(first.models.values())
    settings, data = _settings(first, dataset), _data(first, dataset)
    day = datetime.fromtimestamp((first.path / "metrics.parquet").stat().st_mtime, UTC).date().isoformat()
    return Comparison(dataset, data, metrics, ledgers, models, chosen, _favourable(models, settings), day,
                      _nodes(folders, metrics))


def _nodes(folders: Sequence[RunFolder], metrics: pd.DataFrame) -> pd.DataFrame:
    """Return what each node contributed to each method; empty where nodes have no files of their own."""
    frames = [frame for folder in folders if len(frame := folder.table(NODES_FILE))]
    if not frames:
        return pd.DataFrame()
    frame, only = pd.concat(frames, ignore_index=True), f"{metrics['strategy'].iloc[0]}/seed-"
    return frame.assign(method=frame.pop("run").fillna(only).str.rpartition("/")[0])


def _data(folder: RunFolder, dataset: str) -> Task:
    """Return which records a run, or the first method of a comparison, trains and tests on."""
    settings = _settings(folder, dataset)
    of_nodes = ("partition", "ranges", "categories") if settings.get("partition") == NODES else ()
    try:
        return Task(**{name: settings[name] for name in (*RECORDS, *of_nodes) if name in settings})
    except ValidationError as error:
        raise other_shape(folder.path / "config.toml", error) from None


def _favourable(models: Sequence[Description], settings: Mapping[str, Any]) -> str:
    """Say which class is favourable, by the labels that are saved with the model; nothing if there are none."""
    if not models:
        return ""
    labels = models[0].labels
    chosen = ThresholdSettings(favourable=settings.get("favourable")).favourable_class(labels)
    return favourable_sentence(labels, favourable_of(chosen, len(labels)), chosen is not None, settings.get("label"))


def _settings(folder: RunFolder, dataset: str) -> dict[str, Any]:
    """Return the settings of a run, or of the first method of a comparison."""
    settings = folder.settings
    if "strategies" in settings:
        strategies, name = settings["strategies"], settings.get("preset")
        own = for_strategy(settings["settings"], strategies[0], strategies)
        layer = preset(name, None if own.get("csv") else dataset, strategies[0])
        settings = merged({"dataset": dataset}, layer, own)
    return settings


def _sweep(folder: Path) -> tuple[tuple[str, ...], list[Comparison]]:
    """Return which trials of a sweep are missing, and its comparisons."""
    trials = from_csv(folder / "trials.csv")
    columns = list(trials.columns)
    varied = columns[columns.index("seed") + 1 : columns.index("ended")]
    finished = trials[trials["ended"] == "finished"]
    if finished.empty:
        raise ValueError(f"no trial of the sweep in {folder} has finished: run fedfair sweep again")
    parts = []
    for key, rows in finished.groupby(["dataset", *varied], sort=False, dropna=False):
        chosen = dict(zip(varied, key[1:], strict=True))
        parts.append(_comparison(chosen, [RunFolder(folder / "trials" / name) for name in rows["trial"]]))
    others = trials[trials["ended"] != "finished"]
    return tuple(f"not shown: {row['trial']} ({row['ended']})" for row in others.to_dict("records")), parts
