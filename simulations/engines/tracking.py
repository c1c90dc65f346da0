"""Following a run in TensorBoard, MLflow or Weights & Biases: one small interface, each an optional extra.

Tracked values were measured without noise, except the ledger's epsilon: they are not private.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from os import environ
from pathlib import Path
from typing import Any, Protocol

from fedfair.accounting.events import LEFT_OUT
from fedfair.plugins.lazy import library
from fedfair.plugins.registry import Registry
from simulations.engines.resume import Watch
from simulations.settings.experiment import Experiment
from strategies.server.rounds import Rounds


class Tracker(Protocol):
    """Destination of a run's values; it is made with a name, a folder and the experiment's settings.

    Examples:
        >>> class Printed:
        ...     def measured(self, values, round_):
        ...         print(round_, values)
        ...     def finish(self):
        ...         print("finished")
        >>> tracker: Tracker = Printed()
        >>> tracker.measured({"test/accuracy/all": 0.8}, round_=10)
        10 {'test/accuracy/all': 0.8}
        >>> tracker.finish()
        finished
    """

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

_log = logging.getLogger(__name__)

_LONGEST = 240  # characters of a metric's name; MLflow takes 250, and file systems 255


@contextmanager
def tracking(name: str, folder: Path, experiment: Experiment) -> Iterator[Watch]:
    """Yield a `watch` for `simulations.engines.run.run` that sends a run's values to a tracker, as a context.

    Args:
        name: A name in `TRACKERS`.
        folder: Where the tracker writes.
        experiment: The experiment that is run: its settings are recorded, and name the run.

    Raises:
        ValueError: If the tracker is unknown, or cannot be made.

    Examples:
        >>> from simulations import run
        >>> experiment = Experiment(strategy="dpsgd", steps=2, hidden=(4,), accountant="rdp")
        >>> with tracking("tensorboard", Path("followed"), experiment) as watch:
        ...     result = run(experiment, watch=watch)
        >>> [folder.name for folder in Path("followed").iterdir()], list(result.ledger.unprotected)[-1]
        (['digits-dpsgd-0'], 'metrics on the test part')
    """
    lost = False
    label = f"{experiment.dataset}-{experiment.strategy}-{experiment.seed}"
    make = TRACKERS[name]
    try:
        tracker = make(label, folder, experiment.settings())
    except Exception as error:
        raise ValueError(f"{name} cannot follow the run: {error}") from error

    def watch(rounds: Rounds, now: int) -> None:
        """Send the tracker what was measured in this round; what a tracker cannot take is lost, not the run."""
        nonlocal lost
        rounds.ledger.expose(f"what {name} is sent", "the metrics that the result has, without noise")
        rows = rounds.rows.latest(now)
        values = {f"{row['split']}/{row['metric']}/{row['group']}": row["value"] for row in rows}
        if any(row["split"] in ("test", LEFT_OUT) for row in rows):
            values["ledger/epsilon/all"] = rounds.ledger.epsilon()
        if not values or lost:
            return
        try:
            tracker.measured(values, now)
        except Exception as error:
            lost = True
            _log.warning("%s takes no more values from round %d on, and the run goes on without it: %s", name, now,
                         _first_line(error))

    try:
        yield watch
    finally:
        try:
            tracker.finish()
        except Exception as error:
            _log.warning("%s could not be closed: %s", name, _first_line(error))


def _first_line(error: Exception) -> str:
    """Return an error's kind and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@TRACKERS.register("tensorboard")
class TensorBoard:
    """Tracker that writes event files into the folder: `tensorboard --logdir FOLDER`.

    Args:
        name: Name of the run.
        folder: Where the event files go, in a folder of the run's name.
        settings: The experiment's settings, recorded as text.

    Examples:
        >>> tracker = TensorBoard("my-run", Path("followed"), {"clip_norm": 1.0})
        >>> tracker.measured({"test/accuracy/all": 0.8}, 10)
        >>> tracker.finish()
        >>> len(list(Path("followed/my-run").glob("events.*")))
        1
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

    Examples:
        >>> tracker = MLflow("my-run", Path("followed"), {"clip_norm": 1.0})
        >>> tracker.measured({"test/accuracy/all": 0.8}, 10)
        >>> tracker.finish()
        >>> len(list(Path("followed").glob("*/*/metrics/test/accuracy/all")))
        1
    """

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        library("mlflow", "mlflow")
        environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._names: dict[str, str] = {}
        self._client = MlflowClient(environ.get("MLFLOW_TRACKING_URI") or folder.absolute().as_uri())
        existing = self._client.get_experiment_by_name("fedfair")
        number = existing.experiment_id if existing else self._client.create_experiment("fedfair")
        self._run = self._client.create_run(number, run_name=name).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run, key, value)

    def measured(self, values: Mapping[str, float], round_: int) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            if math.isinf(value):  # of which MLflow makes the largest number that there is
                self._client.set_tag(self._run, self._allowed(name), f"infinite in round {round_}")
            else:
                self._client.log_metric(self._run, self._allowed(name), value, step=round_)

    def _allowed(self, name: str) -> str:
        """Return the name that MLflow gets: without characters that it refuses, and no other value's."""
        if name not in self._names:
            parts = (re.sub(r"[^\w\-. ]", "_", part.replace("&", "and")) for part in name.split("/", 2))
            made = "/".join(part if set(part) - {"."} else "_" for part in parts)[:_LONGEST]
            again = (f"{made} {number}" for number in count(2))
            self._names[name] = next(each for each in chain([made], again) if each not in self._names.values())
        return self._names[name]

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

    Examples:
        >>> tracker = WeightsAndBiases("my-run", Path("followed"), {"clip_norm": 1.0})
        >>> tracker.measured({"test/accuracy/all": 0.8}, 10)
        >>> tracker.finish()
        >>> len(list(Path("followed").glob("wandb/offline-run-*/*.wandb")))
        1
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
