"""The Ray grid gives what the local grid gives, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedfair import client_app
from fedfair.datasets.files import in_memory
from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack, unpack
from simulations import Experiment, run
from simulations.engines import ray_workers as workers
from simulations.engines.engines import Flower, Ray
from simulations.engines.local import LocalGrid
from simulations.engines.ray import RayGrid
from simulations.engines.ray_workers import Shape
from simulations.engines.run import conduct
from simulations.fitting.fit import Wanted, fit_with_records
from simulations.results.result import Result
from strategies.server.replies.requests import added, answers
from tests.simulations.engines.conftest import start_cluster
from tests.simulations.engines.faulty import app, calls, leaving, left

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.xdist_group("ray")]

ENGINE = Ray(nodes=2, cpus=0.5)


def experiment(strategy: str, **settings: Any) -> Experiment:
    return Experiment(**{"strategy": strategy, "split": (0.2, 0.0, 0.8), "imbalance": "8:5", "hidden": (12,),
                         "clip_norm": 1.0, "steps": 4, "batch_size": 32, "delta": 1e-4, "dtype": "float64", **settings})


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def grid(timeout: float = 60) -> RayGrid:
    return RayGrid(app, 2, Shape(cpus=0.5, gpus=0, threads=1, restarts=1), timeout)


def failing(grid: RayGrid, path: Path, way: str, times: int) -> list[Message]:
    """Ask every node to fail a number of times."""
    asked = ConfigRecord({"file": str(path), "way": way, "times": times})
    return [Message(RecordDict({"asked": asked}), node, "query.fail") for node in grid.get_node_ids()]


def doubling(grid: RayGrid, record: ArrayRecord) -> list[Message]:
    return [Message(RecordDict({"weights": record}), node, "train.double") for node in grid.get_node_ids()]


@pytest.mark.parametrize(("strategy", "sync"), [
    ("dpsgd-f", "step"), pytest.param("dpsgd-global-adapt", "epoch", marks=pytest.mark.slow)])
def test_weights_ledger_and_metrics_are_those_of_the_local_engine(strategy: str, sync: str) -> None:
    made = experiment(strategy, sync=sync)
    local, first, again = run(made), run(made, ENGINE), run(made, ENGINE)
    assert torch.allclose(weights(local), weights(first), rtol=0, atol=1e-12)
    assert torch.equal(weights(first), weights(again))
    assert local.ledger.events == first.ledger.events
    pd.testing.assert_frame_equal(local.metrics, first.metrics, rtol=1e-9)


def test_released_moments_and_their_front_are_those_of_the_local_engine() -> None:
    made = experiment("moments", features="bounded", model="linear", hidden=(), partition="site", clients=3,
                      noise_multiplier=2.0)
    there, here = run(made, ENGINE), run(made)
    assert there.front is not None
    assert here.front is not None
    assert torch.allclose(there.front.front.weights, here.front.front.weights, rtol=0, atol=1e-9)
    pd.testing.assert_frame_equal(pd.DataFrame(there.front.rows), pd.DataFrame(here.front.rows))
    assert there.ledger.events == here.ledger.events


def test_a_secure_sum_is_that_of_the_local_engine() -> None:
    """Its four exchanges go to one actor each, with what the node keeps between them."""
    made = experiment("moments", features="bounded", model="linear", hidden=(), partition="site", clients=3,
                      noise_multiplier=2.0, trust="distributed", noise="discrete", secure_aggregation=True)
    there, here = run(made, ENGINE), run(made, nodes=2)
    assert torch.allclose(weights(there), weights(here), rtol=0, atol=1e-12)
    assert there.ledger.by_observer() == here.ledger.by_observer()


def test_a_data_set_of_ray_is_fitted_as_the_same_rows_of_pandas(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.data

    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    draws = np.random.default_rng(0)
    income, town = draws.normal(0, 1, 600).round(2), draws.choice(["x", "y"], 600)
    frame = pd.DataFrame({"income": income, "town": town, "sex": draws.choice(["f", "m"], 600),
                          "good": np.where(income + (town == "y") > .5, "yes", "no")})
    (tmp_path / "parts").mkdir()
    for number in range(3):
        frame[200 * number:200 * number + 200].to_parquet(tmp_path / "parts" / f"{number}.parquet")
    monkeypatch.setattr(in_memory, "_ROWS", 70)
    settings = {"randomness": "seeded"}
    parts = ray.data.read_parquet(str(tmp_path / "parts"))
    there = fit_with_records(Wanted(parts, "good", "sex", 20.0, settings=settings))
    here = fit_with_records(Wanted(frame, "good", "sex", 20.0, settings=settings))
    for (_, one), (_, other) in zip(there.result.data, here.result.data, strict=True):
        assert torch.equal(one.x.clone(), other.x.clone())
        assert torch.equal(one.y, other.y)
        assert torch.equal(one.group, other.group)
    assert there.kinds == here.kinds == ("income",)
    assert torch.equal(weights(there.result), weights(here.result))
    mixed = ray.data.from_pandas([frame, frame.assign(income="much")])
    with pytest.raises(ValueError, match="make the values of each column of one kind in all its files"):
        in_memory.written(mixed)
    assert [*(tmp_path / "fedfair" / "tables").iterdir()] == []


def test_what_a_node_keeps_is_there_at_its_next_message() -> None:
    nodes = grid()
    for times in range(3):
        replies = nodes.send_and_receive([Message(RecordDict(), node, "query.count") for node in nodes.get_node_ids()])
        assert [reply.content["asked"]["times"] for reply in replies] == [times] * 2


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_no_bit_and_no_entry_of_the_ledger() -> None:
    made, killed = experiment("dpsgd-f", steps=6, sync="step"), []

    def kill(done: int, rounds: int) -> None:
        if done in (2, 4):
            worker = workers.workers(client_app.app, 2, Shape(0.5, 0, 1, 3))[done // 2 - 1]
            killed.append(ray.get(worker.__ray_call__.remote(lambda self: os.getpid())))
            os.kill(killed[-1], signal.SIGKILL)

    undisturbed, disturbed = run(made, ENGINE), run(made, ENGINE, progress=kill)
    assert len(set(killed)) == 2
    assert torch.equal(weights(undisturbed), weights(disturbed))
    assert undisturbed.ledger.events == disturbed.ledger.events
    pd.testing.assert_frame_equal(undisturbed.metrics, disturbed.metrics)


@pytest.mark.slow
def test_with_other_noise_a_killed_worker_is_not_asked_again() -> None:
    """It would give another answer, a second release; a run that resumes from its checkpoint charges for that."""

    def kill(done: int, rounds: int) -> None:
        worker = workers.workers(client_app.app, 2, Shape(0.5, 0, 1, 0))[0]
        os.kill(ray.get(worker.__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)

    with pytest.raises(ClientError, match=r"node 2 failed: its worker died: look for a lack of memory"):
        run(experiment("dpsgd", randomness="system"), ENGINE, progress=kill)


def test_arrays_that_messages_share_travel_once_and_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[object] = []
    monkeypatch.setattr("simulations.engines.ray.ray.put", lambda value, put=ray.put: puts.append(value) or put(value))
    here, record, tensor = grid(), pack({"w": torch.arange(50_000.0)}), torch.arange(50_000.0)
    found = [list(here.send_and_receive(doubling(here, one))) for one in (record, record, pack({"w": tensor + 1}))]
    assert len(puts) == 2
    for replies, expected in zip(found, (2 * tensor, 2 * tensor, 2 * tensor + 2), strict=True):
        assert all(torch.equal(unpack(reply.content, "sums")["w"], expected) for reply in replies)
    where = [[reply.content["where"]["address"] for reply in replies] for replies in found]
    assert where[0] == where[1]  # the same tensor, so that a probe of the first exchange serves in the second
    assert [reply.metadata.src_node_id for reply in found[0]] == list(here.get_node_ids())
    small = list(here.send_and_receive(doubling(here, pack({"w": tensor[:100]}))))
    assert len(puts) == 2  # what is small travels within the messages
    assert all(torch.equal(unpack(reply.content, "sums")["w"], 2 * tensor[:100]) for reply in small)


def test_workers_outlive_a_grid_and_have_the_threads_that_they_were_given() -> None:
    def pids() -> list[object]:
        here = grid()
        replies = here.send_and_receive(doubling(here, pack({"w": torch.ones(3)})))
        assert {reply.content["where"]["threads"] for reply in replies} == {1}
        return [reply.content["where"]["pid"] for reply in replies]

    first = pids()
    assert len(set(first)) == 2
    assert pids() == first


def test_messages_can_be_pushed_now_and_pulled_later() -> None:
    here = grid()
    numbers = list(here.push_messages(doubling(here, pack({"w": torch.ones(3)}))))
    found: list[Message] = []
    while len(found) < 2:
        found += here.pull_messages(numbers)
    assert sorted(reply.metadata.reply_to_message_id for reply in found) == sorted(numbers)
    assert list(here.pull_messages(numbers)) == []


def test_a_handler_that_raises_is_not_asked_again_and_its_node_is_named(tmp_path: Path) -> None:
    here = grid()
    replies = list(here.send_and_receive(failing(here, tmp_path / "calls", "raise", 9)))
    with pytest.raises(ClientError, match="node 2 failed: KeyError: 'something was not there'"):
        answers(replies, 2)
    assert [calls(tmp_path / f"calls.{node}") for node in (0, 1)] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "timeout"), [("die", 60), ("hang", 30)])
def test_a_worker_that_dies_or_hangs_is_restarted_and_asked_again(way: str, timeout: float, tmp_path: Path) -> None:
    here = grid(timeout)
    list(here.send_and_receive(doubling(here, pack({"w": torch.ones(3)}))))  # workers are up before the clock starts
    replies = list(here.send_and_receive(failing(here, tmp_path / "calls", way, 1)))
    assert [reply.content["answer"]["node"] for reply in replies] == [0, 1]
    assert [calls(tmp_path / f"calls.{node}") for node in (0, 1)] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "timeout", "reason"), [
    ("die", 60, "its worker died, 2 times over"), ("hang", 5, "no answer within 5 s, asked 2 times")])
def test_a_worker_that_never_answers_is_an_error_and_free_for_the_next_message(
        way: str, timeout: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(grid().send_and_receive(doubling(grid(), pack({"w": torch.ones(3)}))))  # workers are up
    here = grid(timeout)
    with pytest.raises(ClientError, match=f"node 2 failed: {reason}"):
        answers(here.send_and_receive(failing(here, tmp_path / "calls", way, 99)), 2)
    monkeypatch.setattr("simulations.engines.ray.ray.kill", lambda *_, **__: pytest.fail("it was not free"))
    assert all(reply.has_content() for reply in grid().send_and_receive(doubling(here, pack({"w": torch.ones(3)}))))


@pytest.mark.parametrize(("way", "message"), [
    ("nan", "client 1 sent values that are not finite: nothing was added to the model"),
    ("shape", r"client 1 sent sums of shapes \{'w': \(3,\)\}, but \{'w': \(2,\)\} are expected: nothing was added")])
def test_a_client_that_sends_nonsense_is_named_and_nothing_is_added(way: str, message: str) -> None:
    def total(way: str) -> dict[str, torch.Tensor]:
        here = grid()
        asked = [Message(RecordDict({"asked": ConfigRecord({"way": way})}), node, "train.spoil")
                 for node in here.get_node_ids()]
        return added(answers(here.send_and_receive(asked), 2), "sums", {"w": torch.zeros(2)})

    assert total("fine")["w"].tolist() == [2.0, 2.0]
    with pytest.raises(ClientError, match=message):
        total(way)


@pytest.mark.slow
def test_a_client_lost_for_good_ends_the_run_or_is_left_out_as_configured() -> None:
    made = experiment("dpsgd", clients=2, steps=1, trust="distributed")
    forgiving = made.model_copy(update={"dropouts": 1})

    def conducted(made: Experiment) -> Result:
        return conduct(made, RayGrid(leaving, 2, Shape(0.5, 0, 1, 1), 60), lambda done, rounds: None)

    with pytest.raises(ClientError, match="node 3 failed: its worker died, 2 times over"):
        conducted(made)
    found, expected = conducted(forgiving), conduct(forgiving, LocalGrid(left, 2), lambda done, rounds: None)
    assert torch.allclose(weights(found), weights(expected), rtol=0, atol=1e-12)
    assert found.ledger.to_dict() == expected.ledger.to_dict()
    assert found.ledger.epsilon() == run(forgiving).ledger.epsilon()  # the noise of those who are left is enough


def test_a_cluster_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 workers with 1 CPU each do not fit into a Ray cluster that has 2"):
        run(experiment("dpsgd"), Ray(nodes=3))


def test_a_trial_that_fits_on_no_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulations.plans.trials import Resources, run_trials

    def waiting(tuner: object) -> None:
        raise AssertionError("Tune would wait for a machine that never comes")

    monkeypatch.setattr("ray.tune.Tuner.fit", waiting)
    with pytest.raises(ValueError, match="a trial with 4096 CPU does not fit into a Ray cluster that has 2 on its"):
        run_trials({"one": experiment("dpsgd")}, 0, tmp_path, Resources(cpus=4096))
    assert not any(tmp_path.iterdir())


def test_by_default_there_are_as_many_nodes_as_the_cluster_has_room_for() -> None:
    assert workers.room(Shape(0.5, 0, 1, 0)) == 4
    assert workers.room(Shape(8, 0, 1, 0)) == 1


@pytest.mark.slow
def test_flowers_engine_gets_the_cores_that_our_idle_workers_held() -> None:
    """In a new cluster: Ray keeps the cores of a worker that was killed while it was being restarted."""
    start_cluster()
    made = experiment("dpsgd-f", steps=1)
    ours = run(made, Ray(nodes=2, cpus=1))
    assert torch.allclose(weights(ours), weights(run(made, Flower(nodes=2))), rtol=0, atol=1e-12)
