"""Nodes that each open a file of their own, in one process: the run is that of all records in one place."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedfair import client_app
from fedfair.datasets.partition import Shares
from fedfair.node import exchanges
from fedfair.node.node import ClientError, Node
from simulations import Experiment, run
from simulations.engines.engines import Local, make_engine
from simulations.engines.local import LocalGrid
from simulations.results.classifier import TrainedClassifier
from simulations.results.result import Result
from simulations.settings.experiment import SettingsError
from tests.fedfair.datasets.test_node_table import SCHEMA, table

METHODS: dict[str, dict[str, Any]] = {
    "moments": {"model": "linear", "features": "binned", "batch_size": 30},
    "dpsgd-f": {"model": "logistic", "steps": 5, "batch_size": 30},
    "raco": {"model": "logistic", "steps": 3, "batch_size": 30},
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Write three different files and the schema, in a folder of their own; return the files."""
    (tmp_path / "study.toml").write_text(SCHEMA)
    for number in range(3):
        frame = table(60 + 20 * number, number)
        frame = frame[sorted(frame)] if number == 1 else frame
        frame.to_csv(tmp_path / f"node{number}.csv", index=False)
    (tmp_path / "server").mkdir()
    monkeypatch.chdir(tmp_path / "server")
    return tuple(str(tmp_path / f"node{number}.csv") for number in range(3))


def experiment(files: tuple[str, ...], strategy: str = "dpsgd-f", **settings: Any) -> Experiment:
    return Experiment(**{"partition": "nodes", "schema_file": str(Path(files[0]).parent / "study.toml"),
                         "strategy": strategy, "dtype": "float64", "noise_multiplier": 0.0, **METHODS[strategy],
                         **settings})


def in_one_place(made: Experiment, files: tuple[str, ...]) -> Result:
    """Run an experiment on one node that holds all records."""
    tasks = [made.task.at_node(file, len(files)) for file in files]
    clients = {number: task.clients_data(number, len(files))[number] for number, task in enumerate(tasks)}
    only = made.task.at_node(files[0], 1)
    node = Node(Shares.joined(clients), only.build_model(), "cpu")
    with client_app.replaced_nodes(only, [node]), pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanges, "MOST_CLIENTS", 0)  # its figures are not told apart by node
        return run(made, Local(files=files[:1]))


@pytest.mark.parametrize("strategy", METHODS)
def test_three_files_train_like_all_records_in_one_place(strategy: str, files: tuple[str, ...]) -> None:
    made = experiment(files, strategy)
    apart, together = run(made, Local(files=files)), in_one_place(made, files)
    for (name, one), (_, other) in zip(apart.model.named_parameters(), together.model.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10), name
    assert apart.ledger.size == together.ledger.size == 47 + 59 + 73
    metrics = [result.metrics[~result.metrics.split.str.contains("by client")].reset_index(drop=True)
               for result in (apart, together)]
    pd.testing.assert_frame_equal(*metrics, rtol=1e-9)


def test_the_server_evaluates_by_node_and_saves_without_a_file(files: tuple[str, ...], tmp_path: Path) -> None:
    result = run(experiment(files), Local(files=files))
    by_node = result.metrics[result.metrics.split == "test by client"]
    assert {"node 0", "node 1", "node 2"} <= set(by_node.group)
    folder = result.save(tmp_path / "out")
    assert not len(result.data.train)
    assert all("csv" not in line for line in (folder / "config.toml").read_text().splitlines())


def test_a_trained_model_predicts_new_rows(files: tuple[str, ...], tmp_path: Path) -> None:
    run(experiment(files), Local(files=files)).save(tmp_path / "out")
    decided = TrainedClassifier.load(tmp_path / "out").predict(table(10, 9))
    assert {*decided.tolist()} <= {0, 1}


def test_records_of_two_nodes_are_drawn_independently(files: tuple[str, ...]) -> None:
    """Sampling goes by the numbers of records, which no two nodes may share."""
    task = experiment(files).task
    held = [task.at_node(file, 3).clients_data(number, 3).together for number, file in enumerate(files)]
    numbers = torch.cat([part.records for parts in held for _, part in parts])
    assert len(numbers.unique()) == len(numbers) == 240


def test_a_group_that_no_node_has_is_refused(files: tuple[str, ...]) -> None:
    for file in files:
        pd.read_csv(file).assign(sex="f").to_csv(file, index=False)
    with pytest.raises(ClientError, match="no node has a training record of group 'm'"):
        run(experiment(files), Local(files=files))


def test_a_file_unlike_the_schema_ends_the_run_before_anything_is_released(files: tuple[str, ...]) -> None:
    pd.read_csv(files[1]).assign(job="poet").to_csv(files[1], index=False)
    with pytest.raises(ClientError, match="its file is not like the schema: job has values that the schema"):
        run(experiment(files), Local(files=files))


def test_a_node_without_a_file_says_so(files: tuple[str, ...]) -> None:
    with pytest.raises(ClientError, match="this node has no file of its own"):
        run(experiment(files), make_engine("local", 3))


def started_again(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """Let all nodes be started again before the request of that number: under other ids, and without what they kept."""
    receive, asked = LocalGrid.send_and_receive, count()

    def again(self: LocalGrid, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        received = receive(self, messages)
        if next(asked) == before - 1:
            self._contexts = {node + 100: Context(0, node + 100, context.node_config, RecordDict(), {})
                              for node, context in self._contexts.items()}
        return received

    monkeypatch.setattr(LocalGrid, "send_and_receive", again)


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_nodes_that_come_back_under_other_ids_are_the_clients_of_their_numbers(
        sync: str, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment(files, noise_multiplier=1.0, sync=sync, steps=3)
    steady = run(made, Local(files=files))
    started_again(monkeypatch, before=3)
    again = run(made, Local(files=files))
    for (name, one), (_, other) in zip(steady.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert again.ledger.events == steady.ledger.events
    assert again.ledger.size == steady.ledger.size


def test_nodes_with_sites_that_come_back_under_other_ids_end_the_run(files: tuple[str, ...],
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    for file in files:
        frame = pd.read_csv(file)
        frame.assign(ward=[f"w{row % 2}" for row in range(len(frame))]).to_csv(file, index=False)
    started_again(monkeypatch, before=3)
    with pytest.raises(ClientError, match="node 102 came after the run began, and the sites of nodes are numbered by"):
        run(experiment(files, steps=3, sync="epoch", trust="local"), Local(files=files, site="ward"))


def test_a_file_for_each_node(files: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="nodes is 2, but there are 3 files"):
        make_engine("local", 2, {"files": list(files)})
