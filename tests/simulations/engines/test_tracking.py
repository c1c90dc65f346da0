"""Each tracker's own library reads back, offline, what a run measured."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations import Experiment, Result, run
from simulations.cli import app
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.tracking import TRACKERS, tracking

EXPERIMENT = Experiment(strategy="dpsgd", hidden=(8,), epochs=2, delta=1e-4)


def followed(name: str, folder: Path) -> Result:
    with tracking(name, folder, EXPERIMENT) as watch:
        return run(EXPERIMENT, watch=watch)


def last_accuracy(result: Result) -> float:
    rows: pd.DataFrame = result.metrics.query("split == 'test' and metric == 'accuracy' and group == '3'")
    return float(rows["value"].iloc[-1])


@pytest.mark.slow
def test_tensorboard_reads_its_event_files(tmp_path: Path) -> None:
    result = followed("tensorboard", tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "digits-dpsgd-0"))
    events.Reload()
    accuracy = events.Scalars("test/accuracy/3")
    assert [event.step for event in accuracy] == sorted(result.metrics.query("split == 'test'")["round"].unique())
    assert accuracy[-1].value == pytest.approx(last_accuracy(result))
    assert events.Scalars("ledger/epsilon/all")[-1].value == pytest.approx(result.ledger.epsilon(), rel=1e-5)


@pytest.mark.slow
def test_mlflow_finds_the_run_its_settings_and_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = followed("mlflow", tmp_path / "mlruns")
    from mlflow import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("fedfair")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["strategy"] == "dpsgd"
    assert found.data.metrics["test/accuracy/3"] == pytest.approx(last_accuracy(result))
    assert len(client.get_metric_history(found.info.run_id, "ledger/epsilon/all")) == 2


@pytest.mark.slow
def test_wandb_writes_a_run_that_can_be_sent_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    result = followed("wandb", tmp_path)
    import wandb

    wandb.teardown()  # its service writes in the background until it ends
    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, found = DataStore(), []
    store.open_for_scan(str(log))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        found += [float(item.value_json) for item in record.history.item
                  if "/".join(item.nested_key or [item.key]) == "test/accuracy/3"]
    assert found[-1] == pytest.approx(last_accuracy(result))


class Noted:
    """Tracker that records what it is given."""

    def __init__(self, name: str, folder: Path, settings: object) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []
        self.finished = False

    def measured(self, values: dict[str, float], round_: int) -> None:
        """See `Tracker`."""
        self.seen.append((round_, dict(values)))

    def finish(self) -> None:
        """See `Tracker`."""
        self.finished = True


def test_every_row_is_told_once_and_the_end_also_when_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                  ) -> None:
    noted = Noted("", tmp_path, {})
    monkeypatch.setitem(TRACKERS._values, "noted", lambda *_: noted)
    result = followed("noted", tmp_path)
    told = sum(len(values) for _, values in noted.seen)
    evaluations = result.metrics.query("split == 'test'")["round"].nunique()
    assert told == len(result.metrics) + evaluations  # and an epsilon for each evaluation
    assert noted.finished
    noted.finished = False
    with pytest.raises(ZeroDivisionError), tracking("noted", tmp_path, EXPERIMENT):
        _ = 1 / 0
    assert noted.finished


def test_a_run_that_goes_on_tells_what_follows_its_checkpoint_each_at_its_own_round(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Experiment(strategy="dpsgd-f", hidden=(8,), steps=12, eval_every=0.6, delta=1e-4, noise_multiplier=1.0)
    place = Checkpoint(tmp_path / "run", made.settings(), every=4)

    def stop(done: int, rounds: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(made, progress=stop, checkpoint=place)
    noted = Noted("", tmp_path, {})
    monkeypatch.setitem(TRACKERS._values, "noted", lambda *_: noted)
    with tracking("noted", tmp_path, made) as watch:
        metrics = run(made, checkpoint=place, watch=watch).metrics
    names = metrics["split"] + "/" + metrics["metric"] + "/" + metrics["group"]
    told = {(round_, name) for round_, values in noted.seen for name in values if name != "ledger/epsilon/all"}
    assert told == {(r, name) for r, name in zip(metrics["round"], names, strict=True) if r > 4}
    assert any(name.startswith("rule/") for _, name in told)


def test_an_unknown_tracker_and_a_missing_library_are_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = CliRunner().invoke(app, ["run", "--track", "tensorbord", "--set", "epochs=1"])
    assert (wrong.exit_code, "did you mean 'tensorboard'?" in wrong.output) == (2, True)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    missing = CliRunner().invoke(app, ["run", "--track", "wandb", "--set", "epochs=1"])
    assert (missing.exit_code, "pip install 'fedfair[wandb]'" in missing.output) == (2, True)


@pytest.mark.slow
def test_any_group_reaches_mlflow_and_no_two_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = TRACKERS["mlflow"]("run", tmp_path / "mlruns", {})
    groups = ("<25", ">25", "60+ (senior)", "a & b", "a and b", "..", "a/../b", "Łódź", "x" * 400, "x" * 401, "?")
    values = {f"test/accuracy/{group}": float(place) for place, group in enumerate(groups)}
    tracker.measured(values, 1)
    tracker.measured(values, 2)
    tracker.finish()
    from mlflow import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("fedfair")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert sorted(found.data.metrics.values()) == sorted(values.values())
    assert "test/accuracy/a and b" in found.data.metrics


def test_a_tracker_that_fails_is_said_once_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Noted):
        def measured(self, values: dict[str, float], round_: int) -> None:
            raise ConnectionError("the server is gone\nand more")

        def finish(self) -> None:
            raise ConnectionError("still gone")

    monkeypatch.setitem(TRACKERS._values, "broken", lambda *_: Broken("", tmp_path, {}))
    assert len(followed("broken", tmp_path).metrics)
    assert [record.message.partition(":")[0] for record in caplog.records if "broken" in record.message] == [
        "broken takes no more values from round 1 on, and the run goes on without it", "broken could not be closed"]
    monkeypatch.setitem(TRACKERS._values, "absent", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match="absent cannot follow the run: division by zero"):
        followed("absent", tmp_path)


@pytest.mark.slow
def test_mlflow_gets_no_number_for_an_infinite_epsilon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = TRACKERS["mlflow"]("run", tmp_path / "mlruns", {})
    tracker.measured({"ledger/epsilon/all": math.inf, "test/accuracy/all": 0.5}, 3)
    tracker.finish()
    from mlflow import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("fedfair").experiment_id])
    assert found.data.metrics == {"test/accuracy/all": 0.5}
    assert found.data.tags["ledger/epsilon/all"] == "infinite in round 3"
