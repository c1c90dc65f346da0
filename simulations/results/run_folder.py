"""Reading the folders of runs, comparisons and sweeps."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from safetensors import safe_open

from fedfair.fairness.group_counts import favourable_of
from fedfair.protocol.task import NODES, Task
from simulations.files.csv_text import from_csv
from simulations.results.comparison import RECORDS, Comparison, together
from simulations.results.ledger_table import read_ledgers
from simulations.results.model_metadata import descriptions
from simulations.results.node_files import NODES_FILE
from simulations.settings.presets import for_strategy, merged, preset
from simulations.statistics.statements import favourable_sentence
from strategies.server.threshold_settings import ThresholdSettings

Kind = Literal["run", "comparison", "sweep"]


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
    config = folder / "config.toml"
    if not config.is_file():
        raise FileNotFoundError(f"there is no config.toml in {folder}: give the folder of a finished run, comparison "
                                "or sweep, as --out named it")
    environment = folder / "environment.json"
    source = Source(folder, _kind(folder), config.read_text(encoding="utf-8"),
                    json.loads(environment.read_text(encoding="utf-8")) if environment.is_file() else {})
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
    values = json.loads((folder / "ledger.json").read_text(encoding="utf-8"))
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
    day = datetime.fromtimestamp((folders[0] / "metrics.parquet").stat().st_mtime, UTC).date().isoformat()
    return Comparison(dataset, _data(folders[0], dataset), chosen, metrics, ledgers,
                      _favourable(folders[0], _settings(folders[0], dataset)), day, _attributes(folders[0]),
                      _nodes(folders, metrics))


def _nodes(folders: Sequence[Path], metrics: pd.DataFrame) -> pd.DataFrame:
    """Return what each node contributed to each method; empty where nodes have no files of their own."""
    frames = [from_csv(folder / NODES_FILE) for folder in folders if (folder / NODES_FILE).is_file()]
    if not frames:
        return pd.DataFrame()
    frame, only = pd.concat(frames, ignore_index=True), f"{metrics['strategy'].iloc[0]}/seed-"
    return frame.assign(method=frame.pop("run").fillna(only).str.rpartition("/")[0])


def _attributes(folder: Path) -> dict[str, bool]:
    """Return which sensitive attributes the saved models have as features; empty if the folder does not say."""
    file = folder / "model.safetensors"
    return next(iter(descriptions(file).values())).attributes_used if file.is_file() else {}


def _data(folder: Path, dataset: str) -> Task:
    """Return which records a run, or the first method of a comparison, trains and tests on."""
    settings = _settings(folder, dataset)
    of_nodes = ("partition", "ranges", "categories") if settings.get("partition") == NODES else ()
    return Task(**{name: settings[name] for name in (*RECORDS, *of_nodes) if name in settings})


def _favourable(folder: Path, settings: Mapping[str, Any]) -> str:
    """Say which class is favourable, by the labels that are saved with the model; nothing if there are none."""
    file = folder / "model.safetensors"
    if not file.is_file():
        return ""
    with safe_open(file, "pt") as opened:
        labels = next((json.loads(text)["labels"] for text in (opened.metadata() or {}).values()), None)
    if labels is None:
        return ""
    chosen = ThresholdSettings(favourable=settings.get("favourable")).favourable_class(labels)
    return favourable_sentence(labels, favourable_of(chosen, len(labels)), chosen is not None, settings.get("label"))


def _settings(folder: Path, dataset: str) -> dict[str, Any]:
    """Return the settings of a run, or of the first method of a comparison."""
    settings = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
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
        parts.append(_comparison(chosen, [folder / "trials" / name for name in rows["trial"]]))
    others = trials[trials["ended"] != "finished"]
    return tuple(f"not shown: {row['trial']} ({row['ended']})" for row in others.to_dict("records")), parts
