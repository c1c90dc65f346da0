"""Requests to all nodes, and what comes back: checked, complete, finite, and in a fixed order.

Who took part: of how many training rounds each client's answer came in time and was added up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.node import exchanges
from fedfair.node.node import ClientError
from fedfair.protocol import messages
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task
from strategies.server.population import Population
from strategies.server.replies.reply_checks import (
    UNCHANGED,
    Sender,
    check_group_counts,
    check_request,
    check_same_clients,
    check_size,
    check_success,
    check_tensors,
    named,
    refuse_doubles,
    refuse_infinite,
    sender,
)
from strategies.server.replies.size_checks import population_of, refuse_absent_groups, refuse_other_study
from strategies.server.training import Training

log = logging.getLogger(__name__)

ANSWERS_WITHIN: float = Training.model_fields["answer_timeout"].default

_LOST = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE,
         ErrorCode.CLIENT_APP_CRASHED)  # not what a program raises, which it would raise again
_NODES_WITHIN = 300  # seconds


def requests(exchange: Exchange, grid: Grid, task: Task, population: Population, **parts: Any) -> list[Message]:
    """Return one request to every node of the grid, which says how its clients are numbered."""
    asked = messages.requests(exchange.name, exchange.category, sorted(grid.get_node_ids()), task, **parts)
    return numbering(asked, population, task)


def numbering(asked: list[Message], population: Population, task: Task) -> list[Message]:
    """Tell nodes in their requests how their clients are numbered, where some hold several sites; return the requests.

    Raises `ClientError` for a node that the population does not know: nobody can say which numbers its sites had.
    """
    clients = len(population.sizes)
    if task.partition == NODES and clients > len(population.holders):
        for message in asked:
            node = message.metadata.dst_node_id
            if node not in population.holders:
                raise ClientError(f"node {node} came after the run began, and the sites of nodes are numbered by their "
                                  f"ids: {UNCHANGED}; if it was started again, give it a key (flower-supernode "
                                  "--auth-supernode-private-key), which keeps its id, and run again")
            own = population.holders[node]
            message.content[messages.CLIENTS] = ConfigRecord({"first": own.start, "of": clients})
    return asked


def ask(exchange: Exchange, grid: Grid, task: Task, training: Training, population: Population, dropouts: int = 0,
        **parts: Any) -> list[Message]:
    """Send one request to every node of the grid, and return the replies as `answers` does."""
    asked, within = requests(exchange, grid, task, population, **parts), training.answer_timeout
    return answers(grid.send_and_receive(asked, timeout=within), len(population.sizes), dropouts, asked,
                   population.holders, within)


def answers(replies: Iterable[Message], clients: int = 0, dropouts: int = 0, asked: Sequence[Message] = (),
            holders: Mapping[int, range] | None = None, within: float = ANSWERS_WITHIN) -> list[Message]:
    """Return the replies in the order of their nodes' numbers.

    Raises `ClientError` if more than `dropouts` of the `clients` are missing among them, a node failed, or two nodes
    answer for the same clients; with the requests `asked`, if a reply is none to them; with `holders`, the clients of
    each node at first, if a node answers for others. With `dropouts` above 0, a node that Flower could not reach counts
    as missing. `within` is how many seconds were waited for.
    """
    replied = list(replies)
    received = [reply for reply in replied if not (dropouts and reply.has_error() and reply.error.code in _LOST)]
    by_node = {message.metadata.dst_node_id: message for message in asked}
    for reply in received:
        check_success(reply)
        if asked:
            request = by_node.pop(reply.metadata.src_node_id, None)
            if request is None:
                raise ClientError(f"node {reply.metadata.src_node_id} answers twice, or was not asked: {UNCHANGED}")
            check_size(reply, request)
            check_request(reply, request)
    senders = [sender(reply) for reply in received]
    refuse_doubles(senders)
    if clients:
        for who in senders:
            check_same_clients(who, clients, holders or {})
    silent = set(by_node) - {reply.metadata.src_node_id for reply in replied}
    _refuse_missing(senders, clients, dropouts, sorted(silent), within)
    return [received[at] for at in sorted(range(len(received)), key=lambda at: senders[at].number)]


def _refuse_missing(senders: Sequence[Sender], clients: int, dropouts: int, silent: Sequence[int],
                    within: float) -> None:
    """Raise `ClientError` if more than `dropouts` clients are missing, or, before clients are known, a node."""
    given_up = f" (node {named(silent, 'and')} gave no answer within {within:,.0f} s)" if silent else ""
    if silent and not clients:
        raise ClientError(f"node {named(silent, 'and')} did not answer within {within:,.0f} s: look for what "
                          "hangs there, or take a larger answer_timeout, and run again")
    missing = clients - sum(len(who.clients) for who in senders)
    if missing > 0:
        names = named(sorted(set(range(clients)).difference(*(who.clients for who in senders))), "and")
        if missing > dropouts:
            raise ClientError(f"client {names} did not answer, and dropouts is {dropouts}: {UNCHANGED}; check the "
                              f"missing nodes{given_up}, or allow for more dropouts")
        log.warning("client %s did not answer%s: the round goes on without", names, given_up)


def present(replies: list[Message]) -> list[int]:
    """Return the numbers of the clients that the replies answer for."""
    return [client for reply in replies for client in sender(reply).clients]


def added(replies: Iterable[Message], name: str, like: Mapping[str, Tensor] | None = None) -> Gradients:
    """Add up the tensors of the record `name` over the replies of nodes that hold clients.

    Raises `ClientError` naming the clients if one sent none, if a value is not finite, or if names, shapes and types
    differ from those of `like` (by default, of the first reply).
    """
    parts: list[tuple[Gradients, Sender]] = []
    for reply in replies:
        who, record = sender(reply), reply.content.get(name)
        if not record and not who.clients:
            continue
        if not isinstance(record, ArrayRecord) or not record:
            raise ClientError(f"{who} sent no {name}, which it was asked for: {UNCHANGED}; do all nodes run the same "
                              "program?")
        tensors = check_tensors(who, record, name, parts[0][0] if parts and like is None else like)
        parts.append((tensors, who))
    if not parts:
        raise ClientError(f"no node that answered sent any {name}: {UNCHANGED}; look at the missing nodes")
    total = reduce(_plus, [tensors for tensors, _ in parts])
    if not bool(sum(value.sum() for value in total.values()).isfinite()):  # type: ignore[union-attr]
        refuse_infinite(parts, total)
    return total


def population(grid: Grid, task: Task, within: float = ANSWERS_WITHIN) -> Population:
    """Ask every node for the numbers of its clients' records, once all nodes of the run have registered.

    Every node knows the number of nodes; some may register after the server starts. Raises `ClientError` if a node
    cannot make its data or sends impossible numbers, if a node is missing after five minutes, or has not answered
    `within` so many seconds.
    """
    deadline = time.monotonic() + _NODES_WITHIN
    replies: list[Message] = []
    while not replies or len(replies) < sender(replies[0]).of:
        if time.monotonic() > deadline:
            raise ClientError(f"only {len(replies)} nodes are there after {_NODES_WITHIN} s: start the others, and run "
                              "again")
        asked = messages.requests(exchanges.send_sizes.name, exchanges.send_sizes.category,
                                  sorted(grid.get_node_ids()), task)
        sent = grid.send_and_receive(asked, timeout=within) if asked else []
        replies = answers(sent, asked=asked, within=within) if asked else []
        if not replies:
            time.sleep(0.1)
    told = population_of(replies, in_a_row=task.partition == NODES)
    if task.partition == NODES or not task.is_own or task.prepares == "records":
        refuse_absent_groups(told)  # where rows of a table are protected, one would decide whether there is a result
    if task.partition == NODES:
        refuse_other_study(replies, task.data().train, told)
    return told


def group_counts(replies: list[Message], split: str, groups: int, classes: int, confusion: bool = False
                 ) -> GroupCounts:
    """Add up the evaluation counts of one part; raise `ClientError` naming a client whose counts cannot be."""
    zeros, counts = GroupCounts.zeros(groups, classes, confusion).tensors(), []
    for reply in replies:
        who, record = sender(reply), reply.content.array_records.get(split, ArrayRecord())
        if record or who.clients:
            counts.append(check_group_counts(who, split, check_tensors(who, record, f"counts of {split}", zeros)))
    return reduce(lambda a, b: a + b, counts)


def _plus(a: Gradients, b: Gradients) -> Gradients:
    """Add two sums by name."""
    return {name: value + b[name] for name, value in a.items()}


class Attendance:
    """Counts by client, `[clients]`, over the rounds of a run, one that was resumed included.

    Attributes:
        rounds: Number of rounds that ended.
        answered: How many of them each client answered.
    """

    def __init__(self, clients: int) -> None:
        self.rounds, self.answered = 0, [0] * clients

    def note(self, present: Iterable[int]) -> None:
        """Count a round."""
        self.rounds += 1
        for client in present:
            self.answered[client] += 1
