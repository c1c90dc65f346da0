"""What a run leaves behind: metrics, ledger and model, in memory and in a folder."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from fedfair.accounting import Ledger
from fedfair.datasets import DATASETS, Parts
from simulations.experiment import Experiment
from simulations.files import digest, in_json, refuse_unwritable
from simulations.statistics import comparisons, measures
from simulations.summary import final_test, summarise
from strategies.threshold_search import Threshold, ThresholdSearch

CHECKPOINT, CHECKPOINT_TO_BE = "checkpoint.pt", ".checkpoint.new"
"""What a run that is broken off leaves in its folder."""

_PACKAGES = ("flwr", "torch", "numpy", "pandas", "dp-accounting", "scikit-learn")


@dataclass(frozen=True)
class Result:
    """One finished run.

    `metrics` is long: round, split, group, metric, value. Training metrics and everything measured on held-out records
    are not private. With a `threshold`, those of the last round are of its decisions, and those of the model alone
    stand beside them under splits like "test before threshold"; `search` can choose other thresholds from what it got.
    """

    experiment: Experiment
    data: Parts
    metrics: pd.DataFrame
    ledger: Ledger
    model: nn.Module
    search: ThresholdSearch | None = None
    threshold: Threshold | None = None

    def save(self, folder: str | Path) -> Path:
        """Write the folder; raises `FileExistsError` if it holds another experiment."""
        model, train = dict(self.model.named_parameters()), self.data.train
        described = {"shape": list(train.x.shape[1:]), "groups": train.names, "classes": train.classes}
        return write_folder(Path(folder), self.experiment.settings(), [self], self.ledger.to_dict(), model,
                            {"fedfair": json.dumps(described)})

    def threshold_to_dict(self) -> dict[str, Any]:
        """The threshold by the names of the groups, and how the records that it was looked for on are protected."""
        assert self.threshold is not None
        return {**self.threshold.to_dict(self.data.train.names), "privacy": self.ledger.validation_data()}


def identified(results: Sequence[Result]) -> pd.DataFrame:
    """All metrics under each other, with columns dataset, strategy and seed in front."""
    frames = []
    for result in results:
        experiment = result.experiment
        frame = result.metrics.copy()
        for place, name in enumerate(("dataset", "strategy", "seed")):
            frame.insert(place, name, getattr(experiment, name))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def summary(results: Sequence[Result]) -> pd.DataFrame:
    """One row for each data set and strategy; see `simulations.summary`."""
    ledgers = {(r.experiment.dataset, r.experiment.strategy, r.experiment.seed): r.ledger for r in results}
    return summarise(identified(results), ledgers)


def tests(results: Sequence[Result]) -> pd.DataFrame:
    """Paired tests between the strategies; see `simulations.statistics`."""
    return comparisons(measures(final_test(identified(results))))


def save_comparison(results: Sequence[Result], settings: Mapping[str, Any], folder: str | Path) -> Path:
    """Write several runs into one folder; ledgers and models are kept by "strategy/seed"."""
    named = by_run(results)
    ledgers = {name: result.ledger.to_dict() for name, result in named.items()}
    models = {f"{name}/{key}": value for name, r in named.items() for key, value in r.model.named_parameters()}
    return write_folder(Path(folder), settings, results, ledgers, models)


def by_run(results: Sequence[Result]) -> dict[str, Result]:
    """Results by "strategy/seed"."""
    return {f"{r.experiment.strategy}/seed-{r.experiment.seed}": r for r in results}


def refuse_other(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise `FileExistsError` if `folder` holds anything but an experiment with the same settings, and another
    `OSError` if it could not be written.
    """
    refuse_unwritable(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    config = folder / "config.toml"
    if not config.is_file():
        raise FileExistsError(f"{folder} exists and holds no experiment: choose another folder, or remove it")
    if config.read_text() != tomli_w.dumps(dict(settings)):
        raise FileExistsError(f"{folder} holds a different experiment (see its config.toml): choose another folder, or "
                              "remove it")


def refuse_to_replace(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise what `refuse_other` does, and `OSError` if no new folder could take the place of `folder`."""
    place = folder.resolve()
    if Path.cwd().is_relative_to(place) or place.is_mount():
        where = "where a disk is mounted" if place.is_mount() else "that you are in"
        raise OSError(f"{folder} cannot be the folder {where}: name one in it, for example {folder / 'out'}, because "
                      "results take the place of their folder as a whole")
    refuse_other(folder, settings)
    refuse_unwritable(place.parent)


def write_folder(folder: Path, settings: Mapping[str, Any], results: Sequence[Result], ledger: Mapping[str, Any],
                 model: Mapping[str, Tensor], described: dict[str, str] | None = None) -> Path:
    """Write everything beside the folder, then put it in place at once. Raises what `refuse_to_replace` does.

    What somebody put into an earlier folder of the same settings stays. Thresholds, if there are any, go into
    thresholds.json by "strategy/seed". `described` goes with the model, so that it can be used without the data.
    """
    refuse_to_replace(folder, settings)
    with replaced(folder) as new:
        (new / "config.toml").write_text(tomli_w.dumps(dict(settings)))
        identified(results).to_parquet(new / "metrics.parquet", index=False)
        summary(results).to_csv(new / "summary.csv", index=False)
        if len(results) > 1:
            tests(results).to_csv(new / "statistics.csv", index=False)
        (new / "ledger.json").write_text(in_json(ledger))
        try:
            save_file({name: value.detach().contiguous().cpu() for name, value in model.items()},
                      new / "model.safetensors", described)
        except SafetensorError as error:
            raise OSError(f"the model could not be written to {folder}, is the disk full? ({error})") from None
        thresholds = {name: r.threshold_to_dict() for name, r in by_run(results).items() if r.threshold}
        if thresholds:
            (new / "thresholds.json").write_text(in_json(thresholds))
        made = environment([result.experiment for result in results])
        (new / "environment.json").write_text(in_json(made))
        _carry_over(folder, new)
    return folder


def _carry_over(folder: Path, new: Path) -> None:
    """Copy into the folder that takes its place what a folder holds besides: a report, or somebody's notes."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in (CHECKPOINT, CHECKPOINT_TO_BE) and not (new / path.name).exists():
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, new / path.name, symlinks=True)
            else:
                shutil.copy2(path, new / path.name, follow_symlinks=False)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` as a whole, or not at all if an exception is raised.

    A link stays, and the folder that it names is replaced. What an attempt that was killed left over is removed.
    """
    folder = folder.resolve()
    new, old = (folder.with_name(f".{folder.name}.fedfair-{state}") for state in ("new", "old"))
    new.parent.mkdir(parents=True, exist_ok=True)
    for left_over in (new, old):
        shutil.rmtree(left_over, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        for left_over in (new, old):
            shutil.rmtree(left_over, ignore_errors=True)


_RANDOMNESS = {"seeded": "seeded generators, for simulation: who knows the seed knows the batches and the noise",
               "system": "batches and noise from the operating system"}
_NOISE = {"gaussian": "Gaussian in floating point, not hardened against attacks on its low bits",
          "discrete": "exact discrete Gaussian on a public grid"}


def environment(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Versions and machine type, without anything personal; how noise was drawn, and what is not private, that which
    the sources of the data sets learned included.
    """
    names = sorted({experiment.dataset for experiment in experiments if not experiment.csv})
    tables = sorted({experiment.csv for experiment in experiments if experiment.csv and Path(experiment.csv).is_file()})
    learned = [sentence for name in names if name in DATASETS for sentence in DATASETS[name].not_private]
    standardised = [] if all(experiment.ranges for experiment in experiments) else [
        "means and deviations for standardisation come from the training part"]
    return {
        "python": platform.python_version(), "machine": platform.machine(), "system": platform.system(),
        "packages": {name: version(name) for name in _PACKAGES},
        "csv_sha256": [digest(Path(table)) for table in tables],
        "randomness": sorted({_RANDOMNESS[experiment.randomness] for experiment in experiments}),
        "noise": sorted({_NOISE[experiment.noise] for experiment in experiments}),
        "not_private": [*standardised, "the values that a column, a label or a group can have are those that occur",
                        "all metrics are computed without noise", *learned],
    }
