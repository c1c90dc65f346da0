"""The Flower ClientApp: one node answers for the clients that it hosts, with their contributions added up.

A run may have any number of nodes: of n nodes, node p hosts the clients p, p + n, p + 2n, .... Sums are taken in the
order of client numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, reduce, wraps

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedfair.client import Client, ClientError, Contribution
from fedfair.datasets import Parts
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
def _hosts(task: Task) -> dict[tuple[int, int], tuple[Client, ...]]:
    """The clients made so far for the two latest tasks in this process, by (node, number of nodes)."""
    return {}


def hosted_clients(task: Task, node: int, nodes: int) -> tuple[Client, ...]:
    """The clients of a task that node number `node` of `nodes` hosts, with one model between them."""
    hosts = _hosts(task)
    if (node, nodes) not in hosts:
        model = task.build_model().to(task.device)
        hosts[node, nodes] = tuple(Client(number, data, model, task.device)
                                   for number, data in enumerate(_clients_data(task)) if number % nodes == node)
    return hosts[node, nodes]


@lru_cache(maxsize=8)
def _task(text: str) -> Task:
    """The task that a message names."""
    return Task.model_validate_json(text)


Handler = Callable[[Message, tuple[Client, ...]], RecordDict]


def _answer(handler: Handler) -> Callable[[Message, Context], Message]:
    """A Flower handler from one that knows its clients; bad data is an answer that names the client, not a crash."""

    @wraps(handler)
    def answer(message: Message, context: Context) -> Message:
        node, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
        try:
            clients = hosted_clients(_task(str(message.content["task"]["json"])), node, nodes)
            content = handler(message, clients)
            content["node"] = ConfigRecord({"number": node, "clients": [client.number for client in clients]})
        except (ClientError, ValueError, FileNotFoundError) as error:
            content = RecordDict({"failure": ConfigRecord({"node": node, "reason": str(error)})})
        return Message(content, reply_to=message)

    return answer


@app.query("sizes")
@_answer
def sizes(message: Message, clients: tuple[Client, ...]) -> RecordDict:
    """How many training records each hosted client has of each group: public by assumption, and said so."""
    counts = {str(c.number): torch.tensor(c.data.train.group_sizes()) for c in clients}
    names = list(_task(str(message.content["task"]["json"])).data().train.names)
    return RecordDict({"sizes": pack(counts), "groups": ConfigRecord({"names": names})})


@app.query("counts")
@_answer
def counts(message: Message, clients: tuple[Client, ...]) -> RecordDict:
    """The noisy counts of the round's query."""
    weights, round_ = unpack(message.content["weights"]), _round(message)
    return _added(client.counts(weights, round_) for client in clients)


@app.train("gradient_sum")
@_answer
def gradient_sum(message: Message, clients: tuple[Client, ...]) -> RecordDict:
    """The clipped gradient sum of the round's batch, with the counts that it asks for."""
    weights, round_ = unpack(message.content["weights"]), _round(message)
    return _added(client.gradient_sum(weights, round_) for client in clients)


@app.train("local_epoch")
@_answer
def local_epoch(message: Message, clients: tuple[Client, ...]) -> RecordDict:
    """The locally trained weights, each times its client's share in the average."""
    weights, round_ = unpack(message.content["weights"]), _round(message)
    if round_.local is None:
        raise ValueError("a local epoch needs to know how to train: the round has no `local` part")
    local = round_.local
    return _added(client.local_epoch(weights, round_, local) for client in clients)


@app.evaluate("groups")
@_answer
def evaluate(message: Message, clients: tuple[Client, ...]) -> RecordDict:
    """Confusion counts, losses and gradient norms by group, for the parts in `splits`; not private."""
    weights, options = unpack(message.content["weights"]), message.content["options"]
    content = RecordDict()
    for split in options["splits"]:
        evaluated = [client.evaluate(weights, split, bool(options["gradient-norms"])) for client in clients]
        if evaluated:
            content[split] = pack(reduce(lambda a, b: a + b, evaluated).tensors())
    return content


def _round(message: Message) -> Round:
    """The round that a message describes."""
    return Round.from_json(str(message.content["round"]["json"]))


def _added(contributions: Iterable[Contribution]) -> RecordDict:
    """The hosted clients' contributions, added up in their order; empty records if there are none."""
    sums: Gradients = {}
    counted: Tensor | None = None
    for contribution in contributions:
        sums = {name: sums[name] + value if sums else value for name, value in contribution.sums.items()}
        if contribution.counts is not None:
            counted = contribution.counts if counted is None else counted + contribution.counts
    content = RecordDict({"sums": pack(sums)})
    if counted is not None:
        content["counts"] = pack({"counts": counted})
    return content
