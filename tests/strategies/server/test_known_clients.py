"""Nodes that are started again under another id, and what an app's ledger says of their records."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfair.node.node import ClientError
from fedfair.node.private_training import train_privately
from simulations.engines.local import LocalGrid
from strategies.server.existing_app import PrivateTraining
from tests.for_each import for_each

SIZES = (60, 100, 140)
ROUNDS = 6


class Nodes(LocalGrid):
    """Nodes with records of their own, some of which are started again before some rounds.

    Args:
        names: Name of each node in its owner's node config; "" for none.
        again: Before which rounds, from 1, which nodes are started again, without a key.
        late: Nodes that come only before their round.
        sends: What a node sends as its name, in place of its own.
    """

    def __init__(self, names: Iterable[str] = ("", "", ""), again: Mapping[int, Iterable[int]] | None = None,
                 late: Mapping[int, int] | None = None, sends: Mapping[int, Any] | None = None) -> None:
        app, self.trained = ClientApp(), Counter[int]()
        self.again, self.late, self.rounds = again or {}, late or {}, 0
        self.refused: list[str] = []

        @app.train()
        def train(message: Message, context: Context) -> Message:
            number = int(context.node_config["partition-id"])
            model, x = nn.Linear(3, 2), torch.ones(SIZES[number], 3)
            try:
                told = train_privately(model, x, x[:, 0].long(), x[:, 0].long() * 0,
                                       str(message.content["fedfair"]["plan"]), name=str(context.node_config["name"]))
            except ValueError as error:  # as Flower's runtime does
                self.refused.append(str(error))
                return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error)), reply_to=message)
            self.trained[number] += 1
            told |= {"name": sends[number]} if sends and number in sends else {}
            told = {name: value for name, value in told.items() if value is not None}
            content = RecordDict({"arrays": ArrayRecord(model.state_dict()),
                                  "metrics": MetricRecord({"num-examples": len(x)}), "fedfair": ConfigRecord(told)})
            return Message(content, reply_to=message)

        super().__init__(app, len(SIZES))
        for context, name in zip(self._contexts.values(), names, strict=True):
            context.node_config["name"] = name
        self.nodes = dict(enumerate(self._contexts.values()))
        self._ids = {number: number + 2 for number in self.nodes}
        self.next_round()

    def next_round(self) -> None:
        """Give nodes that are started again another id, and leave out those that are not there yet."""
        self.rounds += 1
        for number in self.again.get(self.rounds, ()):
            self._ids[number] = 100 * self.rounds + number
        self._contexts = {self._ids[number]: context for number, context in self.nodes.items()
                          if self.late.get(number, 1) <= self.rounds}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Answer a round."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked))
        if asked:
            self.next_round()
        return replies


def strategy() -> PrivateTraining:
    return PrivateTraining(FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1), ("all",), "dpsgd",
                           batch_size=20, learning_rate=0.5, clip_norm=1.0, delta=1e-4, noise_multiplier=1.0)


def ran(nodes: Nodes) -> PrivateTraining:
    made = strategy()
    made.start(nodes, ArrayRecord(nn.Linear(3, 2).state_dict()), num_rounds=ROUNDS)
    return made


def charged(made: PrivateTraining) -> dict[tuple[float, ...], int]:
    """Return steps by client's sampling rate, which tells clients of different sizes apart."""
    steps: Counter[tuple[float, ...]] = Counter()
    for entry in made.ledger.log.entries:
        steps[entry.event.rates] += entry.steps
    return dict(steps)


def due(trained: Mapping[int, int]) -> dict[tuple[float, ...], int]:
    """Return what `charged` must be where each node trained some epochs of N / 20 steps at the rate 20 / N."""
    return {(20 / SIZES[number],): epochs * (SIZES[number] // 20) for number, epochs in trained.items()}


def numbers(made: PrivateTraining) -> int:
    return len({entry.event.client for entry in made.ledger.log.entries})


def test_nodes_without_a_name_that_all_come_back_under_another_id_are_refused_before_they_train() -> None:
    nodes, made = Nodes(again={4: (0, 1, 2)}), strategy()
    with pytest.raises(ValueError, match=r"node 400 and 401 and 402 came after the run began; .* a key \(flower-super"):
        made.start(nodes, ArrayRecord(nn.Linear(3, 2).state_dict()), num_rounds=ROUNDS)
    assert nodes.trained == {0: 3, 1: 3, 2: 3}
    assert charged(made) == due(nodes.trained)
    assert made.ledger.unprotected.keys() == {"metrics that the app's clients send"}


def test_the_round_goes_on_without_one_that_comes_back_and_has_no_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = ran(nodes := Nodes(again={4: (1,)}))
    assert nodes.trained == {0: 6, 1: 3, 2: 6}
    assert charged(made) == due(nodes.trained)
    assert made.ledger.size == sum(SIZES)
    assert "Left out of the round: node 401 came after the run began" in caplog.text


def test_nodes_with_names_are_the_same_clients_under_any_id() -> None:
    steady = ran(Nodes())
    made = ran(nodes := Nodes(("north", "south", "west"), again={2: (0,), 4: (0, 1, 2), 5: (2,)}))
    assert nodes.trained == {0: 6, 1: 6, 2: 6}
    assert charged(made) == charged(steady)
    assert made.ledger.size == steady.ledger.size == sum(SIZES)
    assert made.ledger.epsilon() == steady.ledger.epsilon()
    assert numbers(made) == 3


def test_a_node_that_joins_later_needs_a_name_and_so_do_all_before_it() -> None:
    made = ran(nodes := Nodes(("north", "south", "west"), late={2: 3}))
    assert nodes.trained == {0: 6, 1: 6, 2: 4}
    assert charged(made) == due(nodes.trained)
    made = ran(nodes := Nodes(("north", "south", ""), late={2: 3}))
    assert nodes.trained == {0: 6, 1: 6}
    assert charged(made) == due(nodes.trained)
    assert "this node came after the run began, and has no name" in nodes.refused[0]
    assert len(nodes.refused) == 4
    ran(nodes := Nodes(("north", "", "west"), late={2: 3}))
    assert nodes.trained == {0: 6, 1: 6}  # it may be node 1, whose owner gave it a name since


def test_a_node_without_a_name_may_be_asked_for_the_first_time_long_after_the_beginning() -> None:
    """It was there, so it is none of the others."""
    made, nodes = strategy(), Nodes()
    arrays = ArrayRecord(nn.Linear(3, 2).state_dict())
    for round_ in range(1, 4):
        asked = list(made.configure_train(round_, arrays, ConfigRecord(), nodes))
        asked = [message for message in asked if message.metadata.dst_node_id != 4 or round_ == 3]
        made.aggregate_train(round_, nodes.send_and_receive(asked))
    assert nodes.trained == {0: 3, 1: 3, 2: 1}
    assert charged(made)[(20 / SIZES[2],)] == 3 * (SIZES[2] // 20)  # the app lost two answers, for all the ledger knows


@for_each(("nodes", "message"), [
    ({"names": ("north", "north", "west")}, r"node . says that it has \d+ records, but it had \d+ before"),
    ({"sends": {0: ""}}, "node 2 sent the name '', but one of 1 to 100 printable characters is expected"),
    ({"sends": {1: 7}}, "node 3 sent the name 7, but one of 1 to 100 printable characters is expected"),
    ({"sends": {1: "\x1b[0m"}}, "node 3 sent the name .* printable characters is expected"),
    ({"sends": {1: "x" * 101}}, "node 3 sent the name 'x.* printable characters is expected"),
    ({"sends": {2: ["c"]}}, r"node 4 sent the name \['c'\], but"),
    ({"names": ("a", "b", "c"), "late": {2: 2}, "sends": {2: None}}, "node 4 came after the run began, and gives no")])
def test_names_that_cannot_be_are_refused(nodes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message) as raised:
        ran(Nodes(**nodes))
    assert "\x1b" not in str(raised.value)


def test_a_node_that_changes_its_name_or_hides_it_is_refused() -> None:
    sends: dict[int, Any] = {}
    for first, then in (("a", "b"), (None, "b")):
        nodes, made = Nodes(("a" if first else "", "c", "d"), sends=sends), strategy()
        arrays = ArrayRecord(nn.Linear(3, 2).state_dict())
        made.aggregate_train(1, nodes.send_and_receive(made.configure_train(1, arrays, ConfigRecord(), nodes)))
        nodes.nodes[0].node_config["name"] = then
        with pytest.raises(ClientError, match=f"node 2 says that its name is 'b', but it was {first!r} before"):
            made.aggregate_train(2, nodes.send_and_receive(made.configure_train(2, arrays, ConfigRecord(), nodes)))


def test_two_nodes_of_one_name_are_charged_as_one_client_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.strategies.server.test_known_clients.SIZES", (60, 60, 60))
    made = strategy()
    with pytest.raises(ClientError, match="two nodes say that their name is 'north', and both were charged as that"):
        made.start(Nodes(("north", "north", "west")), ArrayRecord(nn.Linear(3, 2).state_dict()), num_rounds=1)
    assert sorted(entry.steps for entry in made.ledger.log.entries) == [3, 6]  # 3 steps an epoch


@settings(max_examples=25, deadline=None)
@given(names=st.tuples(*[st.sampled_from(["", name]) for name in ("north", "south", "west")]),
       again=st.dictionaries(st.integers(2, ROUNDS), st.sets(st.integers(0, 2)), max_size=4),
       late=st.dictionaries(st.integers(1, 2), st.integers(1, ROUNDS), max_size=2))
def test_whatever_comes_back_records_are_charged_for_every_epoch_that_used_them(
        names: tuple[str, ...], again: dict[int, set[int]], late: dict[int, int]) -> None:
    """The slow count is by the records themselves: sizes differ, so that rates tell whose epochs were charged."""
    nodes, made = Nodes(names, again, late), strategy()
    with suppress(ValueError):
        made.start(nodes, ArrayRecord(nn.Linear(3, 2).state_dict()), num_rounds=ROUNDS)
    assert charged(made) == due(nodes.trained)
    assert numbers(made) == len(nodes.trained)
