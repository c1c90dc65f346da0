"""The Flower ClientApp: one node answers for the clients that it holds, with their contributions added up.

A run may have any number of nodes: of n nodes, node p holds the clients p, p + n, p + 2n, .... Sums are taken in the
order of client numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfair.node.exchanges import find_exchange
from fedfair.node.node import ClientError, Node
from fedfair.protocol.exchange import Request
from fedfair.protocol.messages import ACTION
from fedfair.protocol.task import Task

app = ClientApp()


@app.query(ACTION)
@app.train(ACTION)
@app.evaluate(ACTION)
def answer(message: Message, context: Context) -> Message:
    """Answer a message with the exchange that it names; turn expected errors into a failure that names the client."""
    number, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    try:
        task = _task(str(message.content["task"]["json"]))
        _refuse_change(context, task)
        node = node_of(task, number, nodes)
        node.kept = _kept_batch(context)
        exchange = find_exchange(str(message.content["exchange"]["name"]))
        content = exchange(node, Request(message, task, node.device))
        _keep_batch(context, node)
        content["node"] = _node_record(number, nodes, len(node.clients))
        content["exchange"] = message.content["exchange"]  # so that an answer to another request is noticed
    except (ClientError, ValueError, OSError) as error:
        content = RecordDict({"failure": ConfigRecord({"node": number, "reason": str(error)})})
    return Message(content, reply_to=message)


@lru_cache(maxsize=2)
def _nodes(task: Task, modified: int) -> dict[tuple[int, int], Node]:
    """Keep the nodes made so far for the two latest tasks in this process, by (number, number of nodes)."""
    return {}


def node_of(task: Task, number: int, nodes: int) -> Node:
    """Return node `number` of `nodes`, with the records that it holds of a task."""
    made = _nodes(task, task.modified)
    if (number, nodes) not in made:
        made[number, nodes] = Node(task.clients_data(number, nodes), task.build_model().to(task.device), task.device)
    return made[number, nodes]


@contextmanager
def replaced_nodes(task: Task, nodes: Sequence[Node]) -> Iterator[None]:
    """Temporarily replace a task's nodes 0, 1, ... in this process (used by audits)."""
    made = _nodes(task, task.modified)
    before = dict(made)
    made.update({(number, len(nodes)): node for number, node in enumerate(nodes)})
    try:
        yield
    finally:
        made.clear()
        made.update(before)


@lru_cache(maxsize=8)
def _task(text: str) -> Task:
    """Read the task that a message names."""
    return Task.model_validate_json(text)


def _refuse_change(context: Context, task: Task) -> None:
    """Raise `ClientError` if the user's file has changed since the node's first message.

    The run was planned for the records that the file had then.
    """
    first = context.state.config_records.setdefault("file", ConfigRecord({"modified": task.modified}))
    if first["modified"] != task.modified:
        raise ClientError(f"{task.csv} was changed while the run went on, which was planned for the records that it "
                          "had: leave the file alone, and run again")


def _kept_batch(context: Context) -> tuple[str, torch.Tensor] | None:
    """Return the batch of `Node.kept` from the state that Flower keeps for the node between messages."""
    kept = context.state.config_records.get("batch")
    return None if kept is None else (str(kept["label"]), torch.tensor(kept["rows"], dtype=torch.long))


def _keep_batch(context: Context, node: Node) -> None:
    """Keep the batch of `Node.kept` for the node's next message; it never leaves the node."""
    if node.kept is not None:
        context.state["batch"] = ConfigRecord({"label": node.kept[0], "rows": node.kept[1].tolist()})


@lru_cache(maxsize=1024)
def _node_record(number: int, nodes: int, clients: int) -> ConfigRecord:
    """Return what a node says of itself in all replies: its number, the number of nodes, and that of its clients."""
    return ConfigRecord({"number": number, "of": nodes, "clients": clients})
