"""Following a run in TensorBoard, MLflow or Weights & Biases: one small interface, each an optional extra.

Tracked values were measured without noise, except the ledger's epsilon: they are not private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any, Protocol

from fedfair.plugins.registry import Registry
from simulations.engines.resume import Watch
from simulations.settings.experiment import Experiment
from simulations.settings.extras import library
from strategies import Strategy


class Tracker(Protocol):
    """Destination of a run's values; it is made with a name, a folder and the experiment's settings."""

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """Record the values that were measured after a round.

        Args:
            values: Values by name, "split/metric/group".
            round_: Number of the round.
        """

    def finish(self) -> None:
        """Close the tracker at the end of the run."""


TRACKERS: Registry[Callable[[str, Path, Mapping[str, Any]], Tracker]] = Registry("tracker")
"""Trackers by name; making one raises `ValueError` if its library is not installed."""


@contextmanager
def tracking(name: str, folder: Path, experiment: Experiment) -> Iterator[Watch]:
    """Yield a `watch` for `simulations.engines.run.run` that sends a run's values to a tracker, as a context.

    Args:
        name: A name in `TRACKERS`.
        folder: Where the tracker writes.
        experiment: The experiment that is run: its settings are recorded, and name the run.

    Raises:
        ValueError: If the tracker is unknown, or its library is not installed.
    """
    label = f"{experiment.dataset}-{experiment.strategy}-{experiment.seed}"
    tracker = TRACKERS[name](label, folder, experiment.settings())

    def watch(strategy: Strategy, now: int) -> None:
        """Send the tracker what was measured in this round."""
        strategy.ledger.expose(f"what {name} is sent", "the metrics that the result has, without noise")
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
    """Tracker that writes event files into the folder: `tensorboard --logdir FOLDER`.

    Args:
        name: Name of the run.
        folder: Where the event files go, in a folder of the run's name.
        settings: The experiment's settings, recorded as text.
    """

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
    """Tracker that records a run in the folder, or on the server that MLFLOW_TRACKING_URI names.

    Args:
        name: Name of the run.
        folder: Where MLflow keeps its files, unless there is a server.
        settings: The experiment's settings, recorded as parameters.
    """

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        library("mlflow", "mlflow")
        environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(environ.get("MLFLOW_TRACKING_URI") or folder.absolute().as_uri())
        existing = self._client.get_experiment_by_name("fedfair")
        number = existing.experiment_id if existing else self._client.create_experiment("fedfair")
        self._run = self._client.create_run(number, run_name=name).info.run_id
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
    """Tracker that records a run of Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync` uploads
    it.

    Args:
        name: Name of the run.
        folder: Where the run's files go.
        settings: The experiment's settings, recorded as configuration.
    """

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
