"""Requests to all nodes, and what comes back: complete, finite, and in a fixed order."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

import torch
from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.gradients.layers import Gradients
from fedfair.node import exchanges
from fedfair.node.node import ClientError
from fedfair.protocol import messages
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.messages import unpack
from fedfair.protocol.task import Task
from strategies.server.population import Population

log = logging.getLogger(__name__)

_LOST = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE,
         ErrorCode.CLIENT_APP_CRASHED)  # not what a program raises, which it would raise again
_NODES_WITHIN = 300  # seconds
_NAMED = 10  # clients in a message


def requests(exchange: Exchange, grid: Grid, task: Task, **parts: Any) -> list[Message]:
    """Return one request to every node of the grid."""
    return messages.requests(exchange.name, exchange.category, sorted(grid.get_node_ids()), task, **parts)


def answers(replies: Iterable[Message], clients: int = 0, dropouts: int = 0) -> list[Message]:
    """Return the replies in the order of their nodes' numbers.

    Raises `ClientError` if more than `dropouts` of the `clients` are missing among them, a node failed, or two nodes
    answer for the same clients. With `dropouts` above 0, a node that Flower could not reach counts as missing.
    """
    received = [reply for reply in replies if not (dropouts and reply.has_error() and reply.error.code in _LOST)]
    for reply in received:
        if reply.has_error():
            raise ClientError(f"node {reply.metadata.src_node_id} failed: {reply.error.reason}")
        if "failure" in reply.content:
            raise ClientError(str(reply.content["failure"]["reason"]))
    _refuse_doubles(received)
    missing = clients - sum(len(_clients_of(reply)) for reply in received)
    if missing > 0:
        names = _named(sorted(set(range(clients)) - set(present(received))), "and")
        if missing > dropouts:
            raise ClientError(f"client {names} did not answer, and dropouts is {dropouts}: nothing was added to the "
                              "model; check the missing nodes, or allow for more dropouts")
        log.warning("client %s did not answer: the round goes on without", names)
    return sorted(received, key=_node)


def _refuse_doubles(replies: Sequence[Message]) -> None:
    """Raise `ClientError` if a client may be in two of the replies.

    Its records would then count twice, with noise for once.
    """
    nodes = {(_node(reply), _clients_of(reply).step) for reply in replies}
    if len(nodes) < len(replies) or len({of for _, of in nodes}) > 1:
        numbers = ", ".join(f"{_node(reply)} of {_clients_of(reply).step}" for reply in replies)
        raise ClientError(f"nodes say that they are number {numbers}, so that two may answer for one client: give each "
                          "its own partition-id, from 0, and all of them the same num-partitions")


def present(replies: list[Message]) -> list[int]:
    """Return the numbers of the clients that the replies answer for."""
    return [client for reply in replies for client in _clients_of(reply)]


def added(replies: list[Message], name: str, like: Mapping[str, Tensor] | None = None) -> Gradients:
    """Add up the tensors of the record `name` over the replies that hold any.

    Raises `ClientError` naming the clients if a value is not finite, or if names and shapes differ from those of `like`
    (by default, of the first reply).
    """
    parts = [(unpack(reply.content, name), reply) for reply in replies if reply.content.get(name)]
    expected = _shapes(parts[0][0] if like is None else like)
    for tensors, reply in parts:
        if _shapes(tensors) != expected:
            raise ClientError(f"client {_clients(reply)} sent {name} of shapes {_shapes(tensors)}, but {expected} are "
                              "expected: nothing was added to the model; do all nodes run the same program?")
    total = reduce(_plus, [tensors for tensors, _ in parts])
    if not bool(sum(value.sum() for value in total.values()).isfinite()):  # type: ignore[union-attr]
        for tensors, reply in parts:
            if not all(bool(value.isfinite().all()) for value in tensors.values()):
                raise ClientError(f"client {_clients(reply)} sent values that are not finite: nothing was added to the "
                                  "model; look at its records, or take a smaller learning rate")
    return total


def population(grid: Grid, task: Task) -> Population:
    """Ask every node for the numbers of its clients' records, once all nodes of the run have registered.

    Every node knows the number of nodes; some may register after the server starts. Raises `ClientError` if a node
    cannot make its data, or a node is missing after five minutes.
    """
    deadline = time.monotonic() + _NODES_WITHIN
    replies: list[Message] = []
    while not replies or len(replies) < int(replies[0].content["node"]["of"]):  # type: ignore[arg-type]
        if time.monotonic() > deadline:
            raise ClientError(f"only {len(replies)} nodes are there after {_NODES_WITHIN} s: start the others, and run "
                              "again")
        asked = requests(exchanges.send_sizes, grid, task)
        replies = answers(grid.send_and_receive(asked)) if asked else []
        if not replies:
            time.sleep(0.1)
    parts = [unpack(reply.content, "sizes") for reply in replies]
    order = torch.tensor(present(replies)).argsort()
    train = torch.cat([sizes["train"] for sizes in parts])[order]
    valid = torch.cat([sizes["valid"] for sizes in parts])
    groups: Any = replies[0].content["groups"]
    return Population(tuple(groups["names"]), tuple(map(tuple, train.tolist())), tuple(valid.sum(0).tolist()),
                      tuple(groups["labels"]), int(valid.sum(1).max()))


def group_counts(replies: list[Message], split: str) -> GroupCounts:
    """Add up the evaluation counts of one part."""
    counts = [GroupCounts(**unpack(reply.content, split)) for reply in replies if split in reply.content]
    return reduce(lambda a, b: a + b, counts)


def _plus(a: Gradients, b: Gradients) -> Gradients:
    """Add two sums by name."""
    return {name: value + b[name] for name, value in a.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors by name."""
    return {name: tuple(value.shape) for name, value in tensors.items()}


def _node(reply: Message) -> int:
    """Return the number of the node that sent a reply."""
    return int(reply.content["node"]["number"])  # type: ignore[arg-type]


def _clients_of(reply: Message) -> range:
    """Return the clients that a reply's node holds: node p of n has p, p + n, ...."""
    number, of, clients = (int(cast(int, reply.content["node"][key])) for key in ("number", "of", "clients"))
    return range(number, number + of * clients, of)


def _clients(reply: Message) -> str:
    """Return the clients that a node answered for, in words."""
    return _named(_clients_of(reply), "or")


def _named(clients: Sequence[int], joined_by: str) -> str:
    """Return clients in words, the first few by number."""
    named = [str(client) for client in clients[:_NAMED]]
    named += [f"{len(clients) - _NAMED:,} others"] if len(clients) > _NAMED else []
    return f" {joined_by} ".join(named)
