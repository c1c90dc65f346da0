"""What each node contributed: for the coordinator, and nothing that a node did not allow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import Message

from fedfair import client_app
from fedfair.accounting.ledger_words import objections
from simulations.engines.engines import Connected, Engine, Local
from simulations.engines.local import LocalGrid
from simulations.engines.run import run
from simulations.report import write_report
from simulations.results.node_files import COLUMNS
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from tests.fedfair.datasets.test_node_table import SCHEMA, table

TRAINED: dict[str, Any] = {"strategy": "dpsgd", "model": "logistic", "sync": "epoch", "steps": 3, "batch_size": 20,
                           "mode": "deployment"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Write three files of different sizes, and the schema."""
    (tmp_path / "study.toml").write_text(SCHEMA)
    for number in range(3):
        table(100 + 100 * number, number).to_csv(tmp_path / f"node{number}.csv", index=False)
    return tuple(str(tmp_path / f"node{number}.csv") for number in range(3))


def trained(files: tuple[str, ...], engine: Engine | None = None, **settings: Any) -> Result:
    schema = str(Path(files[0]).with_name("study.toml"))
    return run(Experiment(partition="nodes", schema_file=schema, **{**TRAINED, **settings}),
               engine or Local(files=files))


class Sleepy(LocalGrid):
    """Nodes of which the last does not answer the second training round."""

    trainings = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Leave an answer out."""
        asked = list(messages)
        training = any(one.metadata.message_type.startswith("train") for one in asked)
        self.trainings += training
        heard = asked[:-1] if training and self.trainings == 2 else asked
        return list(super().send_and_receive(heard))


def test_records_rounds_and_epsilon_of_every_node(files: tuple[str, ...], tmp_path: Path) -> None:
    result = trained(files)
    result.save(tmp_path / "out")
    saved = pd.read_csv(tmp_path / "out" / "nodes.csv")
    assert [*saved.columns] == ["run", *COLUMNS]
    assert saved.node.tolist() == ["node 0", "node 1", "node 2"]
    assert saved.records.tolist() == pytest.approx([70, 140, 210], rel=0.2)  # each row is dealt by itself
    assert saved.sites.tolist() == [1, 1, 1]
    assert saved.answered.tolist() == saved.rounds.tolist() == [3, 3, 3]
    assert saved.epsilon.max() == pytest.approx(result.ledger.epsilon())
    assert saved.epsilon.is_monotonic_decreasing  # a larger file is sampled at a lower rate
    assert saved.accuracy.isna().all()
    assert objections(result.ledger) == {"training records": [], "held-out records": []}


def test_numbers_of_records_are_as_rough_as_round_sizes_says(files: tuple[str, ...]) -> None:
    nodes = trained(files, round_sizes=50).nodes
    assert nodes is not None
    assert nodes.records.tolist() == [100, 200, 300]  # each group's number is rounded up


def test_a_node_that_was_late_is_told(files: tuple[str, ...]) -> None:
    nodes = trained(files, Connected(grid=Sleepy(client_app.app, 3, files)), dropouts=1).nodes
    assert nodes is not None
    assert nodes.answered.tolist() == [3, 3, 2]
    assert nodes.missed.tolist() == [0, 0, 1]


def test_figures_by_node_are_those_that_the_nodes_allowed(files: tuple[str, ...]) -> None:
    result = trained(files, figures="held-out")
    assert result.nodes is not None
    assert result.nodes.accuracy.between(0, 1).all()
    assert (result.nodes.test_records > 0).all()


def test_the_report_has_the_table_and_other_partitions_have_none(files: tuple[str, ...], tmp_path: Path) -> None:
    trained(files, figures="held-out").save(tmp_path / "out")
    write_report([tmp_path / "out"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "By node" in page
    assert "absent or late" in page
    assert run(Experiment(strategy="dpsgd", steps=1, partition="site", clients=2)).nodes is None
