"""Clients of the benchmark of adaptive clipping: the same updates, for Flower's strategies and for ours."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.randomness import generator
from fedfair.node.node import with_noise
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.round import Round

CLIENTS, NUMBERS = 50, 2000
"""Clients, which all join every round, and numbers in an update."""


def update(client: int, round_: int) -> Tensor:
    """Return a client's update `[NUMBERS]`: a random direction, with a norm log-uniform between 0.8 and 1.25 (median
    1).

    A pure function of its arguments, so that every strategy gets the same updates.
    """
    draws = generator(0, "update", client, round_)
    direction = torch.randn(NUMBERS, generator=draws, dtype=torch.float64)
    norm = math.exp(math.log(1.25) * (2 * float(torch.rand((), generator=draws, dtype=torch.float64)) - 1))
    return direction * (norm / float(direction.norm()))


def flower_client(mods: list[Callable[..., Message]]) -> ClientApp:
    """Make a client for Flower's strategies: it returns the weights that it received plus its update."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Reply with the weights after the update, as Flower's strategy expects them."""
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        client = int(context.node_config["partition-id"])
        arrays = unpacked(message.content.array_records["arrays"])
        content = RecordDict({"arrays": pack({"w": arrays["w"] + update(client, round_)}),
                              "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


def our_client() -> ClientApp:
    """Make a client for ours: it clips its update by the round's rule, counts by its query, and sends the negative."""
    app = ClientApp()

    @app.train("exchange")
    def train(message: Message, context: Context) -> Message:
        """Reply with the clipped update and the count, as dp-fedavg expects them."""
        asked = Round.from_json(str(message.content["round"]["json"]))
        assert asked.rule is not None
        assert asked.query is not None
        client = int(context.node_config["partition-id"])
        value, alike = update(client, asked.step + 1), torch.zeros(1, dtype=torch.long)
        norms = value.norm()[None]
        answer = with_noise({"w": -value * asked.rule.coefficients(norms, alike)},
                            asked.query.counts(norms, alike, len(asked.rates)), asked, [client])
        assert answer.counts is not None
        content = RecordDict({"sums": pack(answer.sums), "counts": pack({"counts": answer.counts}),
                              "node": ConfigRecord({"number": client, "of": CLIENTS, "clients": 1}),
                              "exchange": message.content["exchange"]})
        return Message(content, reply_to=message)

    return app


def mean_clipped(bound: float, round_: int) -> Tensor:
    """Return what the average would be without noise."""
    values = torch.stack([update(client, round_) for client in range(CLIENTS)])
    coefficients = Flat(bound).coefficients(values.norm(dim=1), torch.zeros(CLIENTS, dtype=torch.long))
    return coefficients @ values / CLIENTS
