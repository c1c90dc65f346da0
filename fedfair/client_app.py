"""The Flower ClientApp: one node answers for the clients that it hosts, with their contributions added up.

A run may have any number of nodes: of n nodes, node p hosts the clients p, p + n, p + 2n, .... Sums are taken in the
order of client numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import cast

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfair.datasets import Parts
from fedfair.host import ClientError, Contribution, Host
from fedfair.layers import Gradients
from fedfair.messages import pack, unpack
from fedfair.rounds import Round
from fedfair.task import Task

app = ClientApp()


@lru_cache(maxsize=2)
def _clients_data(task: Task) -> list[Parts]:
    """The records of every client of the two latest tasks in this process."""
    return task.clients_data()


@lru_cache(maxsize=2)
def _hosts(task: Task) -> dict[tuple[int, int], Host]:
    """The hosts made so far for the two latest tasks in this process, by (node, number of nodes)."""
    return {}


def host(task: Task, node: int, nodes: int) -> Host:
    """What node number `node` of `nodes` holds of a task."""
    made = _hosts(task)
    if (node, nodes) not in made:
        clients = {number: data for number, data in enumerate(_clients_data(task)) if number % nodes == node}
        made[node, nodes] = Host(clients, task.build_model().to(task.device), task.device)
    return made[node, nodes]


@lru_cache(maxsize=8)
def _task(text: str) -> Task:
    """The task that a message names."""
    return Task.model_validate_json(text)


Handler = Callable[[Message, Host], RecordDict]


def _answer(handler: Handler) -> Callable[[Message, Context], Message]:
    """A Flower handler from one that knows its host; bad data is an answer that names the client, not a crash."""

    @wraps(handler)
    def answer(message: Message, context: Context) -> Message:
        node, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
        try:
            here = host(_task(str(message.content["task"]["json"])), node, nodes)
            content = handler(message, here)
            content["node"] = ConfigRecord({"number": node, "of": nodes, "clients": list(here.clients)})
        except (ClientError, ValueError, OSError) as error:
            content = RecordDict({"failure": ConfigRecord({"node": node, "reason": str(error)})})
        return Message(content, reply_to=message)

    return answer


@app.query("sizes")
@_answer
def sizes(message: Message, here: Host) -> RecordDict:
    """How many training records each client has of each group, rounded as the task says: public by assumption."""
    task = _task(str(message.content["task"]["json"]))
    counts = {str(number): torch.tensor([task.public_size(size) for size in parts.train.group_sizes()])
              for number, parts in here.clients.items()}
    names = task.data().train.names
    return RecordDict({"sizes": pack(counts), "groups": ConfigRecord({"names": list(names)})})


@app.query("counts")
@_answer
def counts(message: Message, here: Host) -> RecordDict:
    """The noisy counts of the round's query."""
    return _content(here.counts(*_weights_and_round(message)))


@app.train("gradient_sum")
@_answer
def gradient_sum(message: Message, here: Host) -> RecordDict:
    """The clipped gradient sum of the round's batch, with the counts that it asks for."""
    return _content(here.gradient_sum(*_weights_and_round(message)))


@app.train("local_epoch")
@_answer
def local_epoch(message: Message, here: Host) -> RecordDict:
    """The locally trained weights, each times its client's share in the average."""
    return _content(here.local_epochs(*_weights_and_round(message)))


@app.evaluate("groups")
@_answer
def evaluate(message: Message, here: Host) -> RecordDict:
    """Confusion counts, losses and gradient norms by group, for the parts in `splits`; not private."""
    weights, options = unpack(message.content, "weights"), message.content.config_records["options"]
    splits = cast(list[str], options["splits"]) if here.clients else []
    return RecordDict({split: pack(here.evaluate(weights, split, bool(options["gradient-norms"])).tensors())
                       for split in splits})


def _weights_and_round(message: Message) -> tuple[Gradients, Round]:
    """The weights that a message carries, and the round that it describes."""
    return unpack(message.content, "weights"), Round.from_json(str(message.content["round"]["json"]))


def _content(contribution: Contribution) -> RecordDict:
    """A contribution as it travels."""
    content = RecordDict({"sums": pack(contribution.sums)})
    if contribution.counts is not None:
        content["counts"] = pack({"counts": contribution.counts})
    return content
