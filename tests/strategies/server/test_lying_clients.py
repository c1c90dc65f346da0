"""What clients of a Flower app say of their training, and what they send, must be possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

from fedfair.node.node import ClientError
from simulations.engines.local import LocalGrid
from strategies.server.existing_app import PrivateTraining
from tests.for_each import for_each
from tests.strategies.server.quickstart import EXPERIMENT, Train, application, around_fedavg, privately, started


def lying(**lie: Any) -> Train:
    """Return a client that trains privately, and then says other things of it; None leaves one out."""
    def train(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        told = {**privately(model, x, y, group, message), **lie}
        return {name: value for name, value in told.items() if value is not None}

    return train


@for_each(("lie", "message"), [
    *[({"size": size}, "node . says that it has .* records, but a whole number from 0 to 1,000,000,000 is expected")
      for size in (-5, 1.5, "x\x1b[0m", 10**15, True, [600], None)],
    ({"size": 0}, "sent counts, but none were asked of its 0 records"),
    *[({"counts": [value] * 4}, "node . sent counts that are not finite numbers")
      for value in (float("nan"), float("inf"), "x")],
    *[({"shape": shape}, r"node . sent counts of the shape .*, but \[2, 2\] is expected")
      for shape in ([-1], [4], [2, 2, 1], [1, 4], "x", None)],
    ({"counts": [1.0] * 3}, "node . sent counts of the shape"),
    ({"counts": None}, "node . sent counts of the shape"),
    ({"counts": None, "shape": None}, "node . sent counts of the shape None"),
    ({"counts": [1.7e308] * 4}, "so large that their sum is not"),
    *[({"step": step}, "node . answers the plan of step .*, but that of step 0 was sent")
      for step in (-1, 1, "0", False, None)]])
def test_what_a_client_says_of_its_training_must_be_possible(lie: dict[str, Any], message: str) -> None:
    strategy = around_fedavg()
    clip_norms = strategy.method.rule()
    with pytest.raises(ClientError, match=message) as raised:
        started(strategy, lying(**lie), rounds=1)
    assert "\x1b" not in str(raised.value)
    assert strategy.method.rule() == clip_norms


def changed(round_: int, change: Callable[[list[Message]], Any], rounds: int = 2) -> PrivateTraining:
    """Return a strategy after some rounds; the replies of round `round_` are changed before it sees them."""
    strategy, grid = around_fedavg(), LocalGrid(application(privately), 2)
    arrays = ArrayRecord(EXPERIMENT.task.build_model().state_dict())
    kept: list[list[Message]] = []
    for now in range(1, rounds + 1):
        asked = list(strategy.configure_train(now, arrays, ConfigRecord(), grid))
        kept.append(sorted(grid.send_and_receive(asked), key=lambda reply: reply.metadata.src_node_id))
        if now == round_:
            change(kept[-1])
        strategy.aggregate_train(now, kept[-1])
    return strategy


def weights_of(change: Callable[[Tensor], Tensor]) -> Callable[[list[Message]], Any]:
    def lie(replies: list[Message]) -> None:
        content = replies[0].content
        content["arrays"] = ArrayRecord({name: change(value) for name, value in
                                         content["arrays"].to_torch_state_dict().items()})

    return lie


def put(record: str, key: str, value: Any) -> Callable[[list[Message]], Any]:
    return lambda replies: replies[0].content[record].__setitem__(key, value)


@for_each(("change", "message"), [
    (put("fedfair", "size", 7), "node 2 says that it has 7 records, but it had .* before"),
    (weights_of(lambda value: value[..., :1]), "node 2 sent weights .* of shape .* is expected"),
    (weights_of(lambda value: value + 0j), "node 2 sent weights .* in complex64, but .* in float32 is expected"),
    (weights_of(lambda value: value > 0), "node 2 sent weights .* in bool, but"),
    (weights_of(lambda value: value / 0), "node 2 sent weights .* that are not finite"),
    (lambda replies: replies[0].content["arrays"].pop("1.bias"), "node 2 sent weights .*, but .* are expected"),
    (lambda replies: replies[0].content["arrays"].__setitem__("evil", Array(torch.zeros(3))), "node 2 sent weights"),
    (put("metrics", "num-examples", -600), "node 2 sent num-examples -600, by which the app averages"),
    (put("metrics", "num-examples", float("nan")), "node 2 sent num-examples nan"),
    (put("metrics", "num-examples", 1e30), r"node 2 sent num-examples 1e\+30"),
    (lambda replies: replies.append(replies[0]), "node 2 answers twice, or was not asked in this round"),
])
def test_a_reply_that_cannot_be_is_refused(change: Callable[[list[Message]], Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        changed(2, change)


def test_a_reply_to_an_older_round_is_refused() -> None:
    first: list[Message] = []
    changed(1, first.extend, rounds=1)
    with pytest.raises(ClientError, match="node 2 did not train privately"):
        changed(2, lambda replies: replies.__setitem__(0, first[0]))
    kept: list[ConfigRecord] = []
    changed(1, lambda replies: kept.append(replies[0].content["fedfair"]), rounds=1)
    with pytest.raises(ClientError, match="node 2 answers the plan of step 0, but that of step 1 was sent"):
        changed(2, lambda replies: replies[0].content.__setitem__("fedfair", kept[0]))


def test_the_error_of_a_lost_client_reaches_the_log_without_escapes() -> None:
    seen: list[str] = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            received = list(replies)
            seen.extend(str(reply.error.reason) for reply in received if reply.has_error())
            return super().aggregate_train(server_round, received)

    strategy, grid = around_fedavg(), LocalGrid(application(privately), 2)
    strategy.strategy = Watching(fraction_evaluate=0.0)
    arrays = ArrayRecord(EXPERIMENT.task.build_model().state_dict())
    asked = list(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    replies = list(grid.send_and_receive(asked))
    replies[0] = Message(Error(ErrorCode.UNKNOWN, "\x1b]0;pwned\x07[red]x"), reply_to=asked[0])
    strategy.aggregate_train(1, replies)
    assert seen == ["]0;pwned (red)x"]
