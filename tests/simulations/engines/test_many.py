"""Many participants: what travels and what is kept grows neither with their number nor with the rounds."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from flwr.app import Message

from fedfair.datasets.partition import Shares
from fedfair.node.exchanges import send_sizes
from fedfair.node.participant_updates import send_update_sum
from simulations import Experiment, run
from simulations.benchmarks import people
from simulations.benchmarks.people import experiment
from simulations.engines.local import LocalGrid
from simulations.results.result import Result
from strategies.server.replies.reply_checks import named


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def test_people_are_what_the_benchmarks_say() -> None:
    made = experiment(100, 10, 1)
    shares = made.task.clients_data()
    assert len(shares) == 100
    assert all(len(parts.train) == people.RECORDS for parts in shares.values())
    assert sum(p.numel() for p in made.task.build_model().parameters()) == 650
    train = made.task.data().train
    assert (float(train.features().min()), float(train.features().max())) == (0, 1)
    assert torch.bincount(train.y, minlength=people.CLASSES).min() > 0


def test_any_number_of_nodes_gives_the_same_model() -> None:
    made = experiment(100, 30, 3).model_copy(update={"dtype": "float64"})
    one, three = (weights(run(made, nodes=nodes)) for nodes in (1, 3))
    assert torch.allclose(one, three, rtol=0, atol=1e-12)


class Listening(LocalGrid):
    """Grid that records the size in bytes of every message and every reply."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.bytes: dict[str, int] = {}

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """See `LocalGrid`."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked, timeout=timeout))
        for message in (*asked, *replies):
            size = sum(len(array.data) for record in message.content.array_records.values()
                       for array in record.values())
            size += sum(len(repr(record)) for record in message.content.config_records.values())
            name = str(asked[0].content["exchange"]["name"])
            self.bytes[name] = max(size, self.bytes.get(name, 0))
        return replies


def test_a_rounds_messages_do_not_grow_with_the_participants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for participants in (1_000, 8_000):  # of more than 100 clients no evaluation is by client
        grids: list[Listening] = []

        def listening(*args: Any, grids: list[Listening] = grids) -> Listening:
            grids.append(Listening(*args))
            return grids[-1]

        monkeypatch.setattr("simulations.engines.engines.LocalGrid", listening)
        run(experiment(participants, 10, 2))
        found.append(grids[0].bytes)
    few, many = found
    assert few.keys() == many.keys() >= {send_update_sum.name, send_sizes.name}
    for name in few.keys() - {send_sizes.name}:
        assert abs(many[name] - few[name]) < 50, name  # digits of larger numbers
    assert many[send_sizes.name] - few[send_sizes.name] < 50 + 2 * 8 * 7_000  # two numbers a client, once


def test_only_clients_that_are_drawn_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    rows = Shares.rows
    monkeypatch.setattr(Shares, "rows",
                        lambda self, number, part="train": made.append(number) or rows(self, number, part))
    run(experiment(1_000, 10, 3))
    assert 0 < len(made) < 100


def test_nothing_is_kept_from_round_to_round() -> None:
    kept: list[int] = []

    def look(done: int, rounds: int) -> None:
        if done in (5, rounds - 1):
            gc.collect()
            kept.append(len(gc.get_objects()))

    run(experiment(100, 20, 30), progress=look)
    assert kept[1] - kept[0] <= 20


def test_a_ledger_of_clients_that_train_alone_does_not_grow_with_rounds() -> None:
    def entries(steps: int) -> int:
        made = Experiment(dataset="digits", strategy="dpsgd", partition="site", clients=7, sync="epoch", batch_size=64,
                          steps=steps, hidden=(4,), accountant="rdp", eval_every=1e9)
        return len(run(made).ledger.log.entries)

    assert entries(1) == entries(4) == 7


def test_of_many_missing_clients_the_first_are_named_and_the_others_counted() -> None:
    assert named([3, 5], "and") == "3 and 5"
    assert named(range(0, 80_000, 2), "or") == (
        "0 or 2 or 4 or 6 or 8 or 10 or 12 or 14 or 16 or 18 or 39,990 others")
