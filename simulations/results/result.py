"""What a run leaves behind: metrics, ledger and model, in memory and in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from torch import Tensor, nn

from fedfair.accounting import Ledger
from fedfair.accounting.ledger_words import held_out_data
from fedfair.datasets import Parts
from fedfair.protocol.task import Task
from simulations.files.atomic_files import in_json
from simulations.files.saved_files import save_tensors, to_csv
from simulations.results.comparison import Comparison
from simulations.results.environment import environment
from simulations.results.folder_files import Run, contents_of
from simulations.results.front_files import save_figures, save_fronts, taken
from simulations.results.model_metadata import Description, numbers
from simulations.results.node_files import NODES_FILE
from simulations.results.notebook import runs_html
from simulations.results.result_folder import carry_over, refuse_to_replace, replaced
from simulations.results.scorecard import SCORECARD, is_scorecard, scorecard
from simulations.settings.experiment import Experiment
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons
from simulations.statistics.statements import attributes_used, favourable_class
from simulations.statistics.summary import final_test, summarise
from strategies.server.releases.front import MeasuredFront
from strategies.server.releases.private_figures import Figures
from strategies.server.releases.threshold_search import Threshold, ThresholdSearch


@dataclass(frozen=True)
class Result:
    """One finished run.

    Training metrics and everything measured on held-out records are not private. With a `threshold`, the last round's
    metrics are those of its decisions; the model's own are under splits like "test before threshold".

    Attributes:
        experiment: Description of the run.
        data: Training, validation and test part.
        metrics: Long table: round, split, group, metric, value.
        ledger: What the run guarantees and spent.
        model: Trained model.
        search: Search for a threshold, which can choose other thresholds from the counts that it received; None if
            there was none.
        threshold: Threshold that the search chose; None if there is none.
        front: Other classifiers that follow from the same releases, with their figures; None for most methods.
        figures: Private figures with their intervals; None unless `figures` is "private".
        nodes: What each node contributed (`simulations.results.node_files`); None where nodes have no files of their
            own.

    Examples:
        >>> from simulations import run
        >>> settings = {"threshold": "toc", "favourable": "8", "deprived": "8", "accountant": "rdp"}
        >>> result = run(Experiment(strategy="dpsgd", steps=2, hidden=(4,), **settings))
        >>> result.group_sizes["8"], result.threshold_to_dict()["privacy"]
        (119, 'validation data: not protected')
        >>> [file.name for file in sorted(result.save("my-run").iterdir())]
        ['config.toml', 'environment.json', 'ledger.json', 'metrics.parquet', 'model.safetensors', 'summary.csv',
         'thresholds.json']
    """

    experiment: Experiment
    data: Parts
    metrics: pd.DataFrame
    ledger: Ledger
    model: nn.Module
    search: ThresholdSearch | None = None
    threshold: Threshold | None = None
    front: MeasuredFront | None = None
    figures: Figures | None = None
    nodes: pd.DataFrame | None = None

    def save(self, folder: str | Path) -> Path:
        """Write config, metrics, summary, ledger, model and environment into a folder, as a whole.

        Args:
            folder: Folder to write; a folder of the same experiment is replaced, and other files in it are kept.

        Raises:
            FileExistsError: If the folder holds another experiment.
            OSError: If it cannot be written.
        """
        return write_folder(Path(folder), self.experiment.settings(), {"": self})

    @property
    def task(self) -> Task:
        """Settings of data and model, with what private preprocessing learned."""
        return self.search.task if self.search else self.experiment.task

    @property
    def description(self) -> Description:
        """Description that is saved with the model."""
        made, train = self.experiment, self.data.train
        return Description(
            model=made.model, hidden=made.hidden, dtype=made.dtype, shape=tuple(train.x.shape[1:]), pixels=made.pixels,
            encoding=train.encoding, groups=train.names, group_columns=tuple(filter(None, made.attributes)),
            labels=train.labels, attributes_used=attributes_used(made, train.columns),
            threshold=self.threshold.rule if self.threshold else None)

    @property
    def group_sizes(self) -> dict[str, int]:
        """Training records by group: of the data, or, where those stayed with the nodes, as these told."""
        train = self.data.train
        if len(train):
            return dict(zip(train.names, train.group_sizes(), strict=True))
        told = self.metrics[(self.metrics["split"] == "train") & (self.metrics["metric"] == "records")]
        sizes = dict(zip(told["group"], told["value"].astype(int), strict=True))
        return {name: sizes.get(name, 0) for name in train.names}

    def _repr_html_(self) -> str:
        """Show the run's tables and findings, and its ledger, for notebooks."""
        return f"{runs_html(compared([self]))}\n{self.ledger._repr_html_()}"

    def threshold_to_dict(self) -> dict[str, Any]:
        """Return the threshold by names of groups and classes.

        Returns:
            The threshold's values for JSON, with how the records that it was searched on are protected.
        """
        assert self.threshold is not None
        train = self.data.train
        return {**self.threshold.to_dict(train.names, train.labels), "privacy": held_out_data(self.ledger, "valid")}


def identified(results: Sequence[Result]) -> pd.DataFrame:
    """Concatenate all metrics, with columns dataset, strategy and seed in front."""
    frames = []
    for result in results:
        experiment = result.experiment
        frame = result.metrics.copy()
        for index, name in enumerate(("dataset", "strategy", "seed")):
            frame.insert(index, name, getattr(experiment, name))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


class Results(list[Result]):
    """A list of finished runs."""

    def _repr_html_(self) -> str:
        """Show tables and findings of each data set, for notebooks."""
        datasets = dict.fromkeys(result.experiment.dataset for result in self)
        parts = [runs_html(compared([result for result in self if result.experiment.dataset == name]))
                 for name in datasets]
        return "\n".join(parts) or "<p>no runs</p>"


def compared(results: Sequence[Result]) -> Comparison:
    """Return finished runs on one data set, at least one, as a comparison."""
    first = results[0]
    return Comparison(first.experiment.dataset, first.experiment.task, identified(results), ledgers_of(results),
                      [result.description for result in results],
                      favourable=favourable_class(first.experiment, first.data), records=first.group_sizes)


def ledgers_of(results: Sequence[Result]) -> dict[tuple[str, str, int], Ledger]:
    """Return the ledgers by run."""
    return {result.experiment.key: result.ledger for result in results}


def summary(results: Sequence[Result]) -> pd.DataFrame:
    """Summarise each data set and strategy in a row; see `simulations.statistics.summary`."""
    return summarise(identified(results), ledgers_of(results))


def tests(results: Sequence[Result]) -> pd.DataFrame:
    """Make paired tests between the strategies; see `simulations.statistics.over_seeds`."""
    return comparisons(measures(final_test(identified(results))))


def save_comparison(results: Sequence[Result], settings: Mapping[str, Any], folder: str | Path) -> Path:
    """Write several runs into one folder, as a whole; ledgers and models are named "strategy/seed-0".

    Args:
        results: Results of the runs, each strategy and seed once.
        settings: Description of the comparison, for config.toml.
        folder: Folder to write; a folder of the same comparison is replaced, and other files in it are kept.

    Raises:
        FileExistsError: If the folder holds something else.
        OSError: If it cannot be written.

    Examples:
        >>> from simulations import run
        >>> results = [run(Experiment(steps=2, hidden=(4,), strategy=name)) for name in ("sgd", "naive")]
        >>> [file.name for file in sorted(save_comparison(results, {"steps": 2}, "comparison").iterdir())]
        ['config.toml', 'environment.json', 'ledger.json', 'metrics.parquet', 'model.safetensors', 'statistics.csv',
         'summary.csv']
    """
    return write_folder(Path(folder), settings, by_run(results))


def by_run(results: Sequence[Result]) -> dict[str, Result]:
    """Index results by "strategy/seed-0"."""
    return {result.experiment.key.name: result for result in results}


def write_folder(folder: Path, settings: Mapping[str, Any], named: Mapping[str, Result]) -> Path:
    """Write everything beside the folder, then put it in place at once. Raise what `refuse_to_replace` does.

    Results are by the name of their run, a single one by "". Other files in an earlier folder of the same settings are
    kept. Thresholds, if any, go into thresholds.json by "strategy/seed-0"; descriptions of the models are stored with
    their weights. Every run's ledger says what each file holds of it.
    """
    refuse_to_replace(folder, settings)
    results = list(named.values())
    with replaced(folder) as new:
        (new / "config.toml").write_text(tomli_w.dumps(dict(settings)), encoding="utf-8")
        identified(results).to_parquet(new / "metrics.parquet", index=False)
        (new / "summary.csv").write_text(to_csv(summary(results)), encoding="utf-8")
        if len(results) > 1:
            (new / "statistics.csv").write_text(to_csv(tests(results)), encoding="utf-8")
        _save_models(named, new / "model.safetensors", folder)
        fronts = {name: result.front for name, result in named.items() if result.front is not None}
        if fronts:
            save_fronts(fronts, new)
        figures = {name: result.figures for name, result in named.items() if result.figures is not None}
        if figures:
            save_figures(figures, new)
        nodes = {name: result.nodes for name, result in named.items() if result.nodes is not None}
        if nodes:
            (new / NODES_FILE).write_text(to_csv(pd.concat(nodes, names=["run"]).reset_index("run")), encoding="utf-8")
        cards = {name: scorecard(result.model, train.encoding, train.labels,
                                 result.front.front.records if result.front else None, _deviations(result))
                 for name, result in named.items() if is_scorecard(result.experiment.model, train := result.data.train)}
        if cards:
            (new / SCORECARD).write_text(to_csv(pd.concat(cards, names=["run"]).reset_index("run")), encoding="utf-8")
        thresholds = {name: r.threshold_to_dict() for name, r in by_run(results).items() if r.threshold}
        if thresholds:
            (new / "thresholds.json").write_text(in_json(thresholds), encoding="utf-8")
        made = environment([result.experiment for result in results])
        (new / "environment.json").write_text(in_json(made), encoding="utf-8")
        written = [*sorted(path.name for path in new.iterdir()), "ledger.json"]
        carry_over(folder, new)
        kept = sorted({path.name for path in new.iterdir()}.difference(written))
        ledgers = {name: _listing(result, written, kept) for name, result in named.items()}
        (new / "ledger.json").write_text(in_json(ledgers.get("", ledgers)), encoding="utf-8")
    return folder


def _deviations(result: Result) -> Tensor | None:
    """Return by how much noise moves each weight of a run's model, `[d]`, where that is known."""
    front = result.front.front if result.front else None
    return front.refits.deviations[taken(front.weights, result.model)] if front and front.refits else None


def _save_models(named: Mapping[str, Result], file: Path, folder: Path) -> None:
    """Write the models' numbers, behind the names of their runs, with what describes them.

    Raises `OSError` that names the `folder` if they cannot be written.
    """
    values = {f"{name}/{key}".removeprefix("/"): value.detach().contiguous().cpu()
              for name, result in named.items() for key, value in numbers(result.model).items()}
    described = {name: result.description.model_dump_json() for name, result in by_run(list(named.values())).items()}
    try:
        save_tensors(values, file, described)
    except OSError as error:
        raise OSError(f"the model could not be written to {folder}, is the disk full? ({error})") from None


def _listing(result: Result, written: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    """Return a run's ledger with what the files hold of the run."""
    encoding = result.data.train.encoding
    run = Run(result.experiment, result.ledger, encoding, result.threshold is not None, result.front is not None)
    return result.ledger.with_files(contents_of(run, written, kept)).to_dict()
