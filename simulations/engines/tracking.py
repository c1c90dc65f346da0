"""Following a run in TensorBoard, MLflow or Weights & Biases: one small interface, each an optional extra.

What is tracked was measured without noise, the ledger's epsilon aside: it is not private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from os import environ
from pathlib import Path
from typing import Any, Protocol

from fedfair.plugins.registry import Registry
from simulations.engines.checkpoint import Watch
from simulations.settings.experiment import Experiment
from strategies import Strategy


class Tracker(Protocol):
    """Somewhere that a run's values go; it is made with a name, a folder and the experiment's settings."""

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """Values by name, "split/metric/group", after a round."""

    def finish(self) -> None:
        """The run is over."""


TRACKERS: Registry[Callable[[str, Path, Mapping[str, Any]], Tracker]] = Registry("tracker")
"""By name; a call may raise `ValueError` if the library is not installed."""


@contextmanager
def tracking(name: str, folder: Path, experiment: Experiment) -> Iterator[Watch]:
    """What to give to `simulations.engines.run.run` as `watch`, so that a run is followed; everything lands in
    `folder`.

    Raises `ValueError` for a tracker that is unknown, or whose library is not installed.
    """
    label = f"{experiment.dataset}-{experiment.strategy}-{experiment.seed}"
    tracker = TRACKERS[name](label, folder, experiment.settings())

    def watch(strategy: Strategy, now: int) -> None:
        """Tell the tracker what was measured in this round."""
        rows = strategy.rows.latest(now)
        values = {f"{row['split']}/{row['metric']}/{row['group']}": row["value"] for row in rows}
        if any(row["split"] == "test" for row in rows):
            values["ledger/epsilon/all"] = strategy.ledger.epsilon()
        if values:
            tracker.measured(values, now)

    try:
        yield watch
    finally:
        tracker.finish()


@TRACKERS.register("tensorboard")
class TensorBoard:
    """Event files in the folder: `tensorboard --logdir FOLDER`."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        library("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / name))
        self._writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_)

    def finish(self) -> None:
        """See `Tracker`."""
        self._writer.close()


@TRACKERS.register("mlflow")
class MLflow:
    """A run in the folder, or on the server that MLFLOW_TRACKING_URI names."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        library("mlflow", "mlflow")
        environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(environ.get("MLFLOW_TRACKING_URI") or folder.absolute().as_uri())
        found = self._client.get_experiment_by_name("fedfair")
        where = found.experiment_id if found else self._client.create_experiment("fedfair")
        self._run = self._client.create_run(where, run_name=name).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run, key, value)

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._client.log_metric(self._run, name.replace("&", "and"), value, step=round_)

    def finish(self) -> None:
        """See `Tracker`."""
        self._client.set_terminated(self._run)


@TRACKERS.register("wandb")
class WeightsAndBiases:
    """A run of Weights & Biases, offline in the folder unless WANDB_MODE says otherwise; `wandb sync` sends it."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        wandb = library("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(project="fedfair", name=name, dir=str(folder), config=dict(settings),
                               mode=environ.get("WANDB_MODE", "offline"), settings=wandb.Settings(silent=True))

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """See `Tracker`."""
        self._run.log(dict(values), step=round_)

    def finish(self) -> None:
        """See `Tracker`."""
        self._run.finish()


def library(module: str, extra: str) -> Any:
    """A module of an optional extra; raises `ValueError` saying how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(f"{module} is not installed: pip install 'fedfair[{extra}]'") from None
