"""What a run leaves behind: metrics, ledger and model, in memory and in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from fedfair.accounting import Ledger
from fedfair.datasets import Parts
from simulations.results.atomic_files import in_json
from simulations.results.environment import environment
from simulations.results.model_metadata import Description, numbers
from simulations.results.result_folder import carry_over, refuse_to_replace, replaced
from simulations.results.statistics import comparisons, measures
from simulations.results.summary import final_test, summarise
from simulations.settings.experiment import Experiment
from strategies.server.threshold_search import Threshold, ThresholdSearch


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
        return write_folder(Path(folder), self.experiment.settings(), [self], self.ledger.to_dict(),
                            numbers(self.model))

    @property
    def description(self) -> Description:
        """What is saved with the model."""
        made, train = self.experiment, self.data.train
        return Description(
            model=made.model, hidden=made.hidden, dtype=made.dtype, shape=tuple(train.x.shape[1:]), pixels=made.pixels,
            encoding=train.encoding, groups=train.names, group_columns=tuple(filter(None, made.attributes)),
            labels=train.labels, threshold=self.threshold.rule if self.threshold else None)

    def threshold_to_dict(self) -> dict[str, Any]:
        """The threshold by names of groups and classes, and how the records that it was looked for on are protected."""
        assert self.threshold is not None
        train = self.data.train
        return {**self.threshold.to_dict(train.names, train.labels), "privacy": self.ledger.validation_data()}


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
    """One row for each data set and strategy; see `simulations.results.summary`."""
    ledgers = {(r.experiment.dataset, r.experiment.strategy, r.experiment.seed): r.ledger for r in results}
    return summarise(identified(results), ledgers)


def tests(results: Sequence[Result]) -> pd.DataFrame:
    """Paired tests between the strategies; see `simulations.results.statistics`."""
    return comparisons(measures(final_test(identified(results))))


def save_comparison(results: Sequence[Result], settings: Mapping[str, Any], folder: str | Path) -> Path:
    """Write several runs into one folder; ledgers and models are kept by "strategy/seed"."""
    named = by_run(results)
    ledgers = {name: result.ledger.to_dict() for name, result in named.items()}
    models = {f"{name}/{key}": value for name, r in named.items() for key, value in numbers(r.model).items()}
    return write_folder(Path(folder), settings, results, ledgers, models)


def by_run(results: Sequence[Result]) -> dict[str, Result]:
    """Results by "strategy/seed"."""
    return {f"{r.experiment.strategy}/seed-{r.experiment.seed}": r for r in results}


def write_folder(folder: Path, settings: Mapping[str, Any], results: Sequence[Result], ledger: Mapping[str, Any],
                 model: Mapping[str, Tensor]) -> Path:
    """Write everything beside the folder, then put it in place at once. Raises what `refuse_to_replace` does.

    What somebody put into an earlier folder of the same settings stays. Thresholds, if there are any, go into
    thresholds.json by "strategy/seed", and so do descriptions of the models into what goes with their weights.
    """
    refuse_to_replace(folder, settings)
    with replaced(folder) as new:
        (new / "config.toml").write_text(tomli_w.dumps(dict(settings)))
        identified(results).to_parquet(new / "metrics.parquet", index=False)
        summary(results).to_csv(new / "summary.csv", index=False)
        if len(results) > 1:
            tests(results).to_csv(new / "statistics.csv", index=False)
        (new / "ledger.json").write_text(in_json(ledger))
        described = {name: result.description.model_dump_json() for name, result in by_run(results).items()}
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
        carry_over(folder, new)
    return folder
