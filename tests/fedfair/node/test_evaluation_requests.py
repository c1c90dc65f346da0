"""What a node refuses of an evaluation's options, whatever the server asks for."""

from __future__ import annotations

import pytest
import torch

from fedfair import client_app
from fedfair.client_app import node_of
from fedfair.node.exchanges import send_evaluation
from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack, requests
from fedfair.protocol.task import Task
from simulations.engines.local import LocalGrid
from strategies.server.replies.reply_checks import check_success

ASKED = {"splits": ["valid"], "gradient-norms": False, "threshold": "", "favourable": -1, "confusion": False,
         "by-client": True}


def answered(task: Task, **options: object) -> list[str]:
    """Return the names of the records that a node answers with; raise `ClientError` if it refuses."""
    grid = LocalGrid(client_app.app, 1)
    weights = pack({name: value.detach() for name, value in task.build_model().named_parameters()})
    asked = requests(send_evaluation.name, "evaluate", grid.get_node_ids(), task, weights=weights,
                     **{**ASKED, **options})
    (reply,) = grid.send_and_receive(asked)
    check_success(reply)
    return list(reply.content.array_records)


def test_counts_by_client_are_of_test_records_and_come_only_where_those_are_asked_for() -> None:
    task = Task(hidden=(4,), partition="site", clients=3)
    assert answered(task) == ["valid"]
    assert answered(task, splits=["test"]) == ["test", "test by client"]


@pytest.mark.parametrize("options", [{"favourable": 10}, {"favourable": 10**9}, {"splits": ["test"]}])
def test_what_does_not_fit_the_task_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ClientError, match="look at the program that it runs"):
        answered(Task(hidden=(4,), partition="site", clients=101), **options)


def test_a_node_counts_the_records_of_each_of_its_clients() -> None:
    task = Task(hidden=(4,), partition="site", clients=3)
    weights = dict(task.build_model().named_parameters())
    parts = [node_of(task, number, 2).evaluate(weights, "test", False, by_client=3) for number in range(2)]
    sizes = (parts[0] + parts[1]).labels.sum(1)
    assert torch.equal(sizes, torch.tensor([float(len(task.clients_data()[n].test)) for n in range(3)]).double())
