"""What the server checks of every reply before it believes anything: one function for each kind of lie or mistake.

All of them raise `ClientError` naming the node or its clients, with what was wrong and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import Tensor

from fedfair.fairness.group_counts import GroupCounts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.node.node import ClientError
from fedfair.protocol.messages import program, unpacked
from strategies.server.replies.foreign_values import claim, keeps_its_claim, number_of_bytes, safe, shown, type_name

UNCHANGED = "nothing was added to the model"
MOST_RECORDS = 10**9
"""The most records that all clients together may say they have."""

_MOST_BYTES = 2**28  # of one reply, if what was sent is small
_TIMES_SENT = 64  # of one reply, in units of what was sent: sums by group are larger than the weights
_NAMED = 10  # clients in a message
SAME = "do all nodes run the same version of the program?"


class Sender(NamedTuple):
    """The node that sent a reply, and the clients that it answers for: node p of n has p, p + n, ....

    A node that was told from which number on its clients are numbered has those that follow.
    """

    node: int
    number: int
    of: int
    clients: range

    def __str__(self) -> str:
        return f"client {named(self.clients, 'or')}" if self.clients else f"node {self.node}"


def named(clients: Sequence[int], joined_by: str) -> str:
    """Return clients in words, the first few by number."""
    names = [str(client) for client in clients[:_NAMED]]
    names += [f"{len(clients) - _NAMED:,} others"] if len(clients) > _NAMED else []
    return f" {joined_by} ".join(names)


def config(reply: Message, name: str) -> ConfigRecord:
    """Return a reply's record of plain values, or an empty one if it has none of this name."""
    record = reply.content.get(name)  # rather than `config_records`, which copies all records
    return record if isinstance(record, ConfigRecord) else ConfigRecord()


def whole(value: object, least: int, most: int) -> bool:
    """Return whether a value that a node sent is a whole number from `least` to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_success(reply: Message) -> None:
    """Raise the error that a reply reports, if it reports one; what the node wrote is made safe to show."""
    node = reply.metadata.src_node_id
    if reply.has_error():
        raise ClientError(f"node {node} failed: {safe(str(reply.error.reason))}")
    if "failure" in reply.content:
        reason = config(reply, "failure").get("reason")
        raise ClientError(safe(str(reason)) if reason else f"node {node} failed, and does not say why")


def check_request(reply: Message, asked: Message) -> None:
    """Raise `ClientError` for an answer to another request: of an older round, or of another exchange."""
    answered, wanted = config(reply, "exchange"), config(asked, "exchange")
    if answered != wanted:
        values = f"request {shown(dict(answered))}" if answered else "no request"
        raise ClientError(f"node {reply.metadata.src_node_id} answers {values}, but {dict(wanted)} was asked: "
                          f"{UNCHANGED}; {SAME}")


def check_size(reply: Message, asked: Message) -> None:
    """Raise `ClientError` for a reply that is larger than any honest one."""
    held = _bytes(reply)
    if held > _MOST_BYTES and held > (most := max(_MOST_BYTES, _TIMES_SENT * _bytes(asked))):
        raise ClientError(f"node {reply.metadata.src_node_id} sent {held:,} bytes, but at most {most:,} are allowed: "
                          f"{UNCHANGED}")


def sender(reply: Message) -> Sender:
    """Return who sent a reply.

    Raises `ClientError` for a number of the node, of all nodes or of clients that cannot be.
    """
    node, record = reply.metadata.src_node_id, config(reply, "node")
    number, of, clients = (record.get(key) for key in ("number", "of", "clients"))
    if not (whole(of, 1, MOST_RECORDS) and whole(number, 0, cast(int, of) - 1) and whole(clients, 0, MOST_RECORDS)):
        raise ClientError(f"node {node} says that it is number {shown(number)} of {shown(of)} with {shown(clients)} "
                          f"clients, but n nodes are numbered from 0 to n - 1 and hold 0 clients or more: {UNCHANGED}; "
                          "look at its partition-id and num-partitions")
    place, nodes, held = cast(tuple[int, int, int], (number, of, clients))
    first = record.get("first")
    if whole(first, 0, MOST_RECORDS):
        return Sender(node, place, nodes, range(cast(int, first), cast(int, first) + held))
    return Sender(node, place, nodes, range(place, place + nodes * held, nodes))


def check_program(reply: Message) -> None:
    """Raise `ClientError` for a node that says that it runs another program than the server."""
    told = config(reply, "node").get("program")
    if told != program():
        raise ClientError(f"node {reply.metadata.src_node_id} runs fedfair {shown(told)}, but the server runs "
                          f"{program()}: install the same on all machines")


def check_same_clients(who: Sender, clients: int, holders: Mapping[int, range]) -> None:
    """Raise `ClientError` for other clients than the node named at first, or than its number says of `clients`."""
    expected = holders.get(who.node, range(who.number, clients, who.of))
    if who.clients != expected:
        raise ClientError(f"node {who.node} answers for client {named(who.clients, 'and') or 'none'}, but it holds "
                          f"{named(expected, 'and') or 'none'} of the run's {clients:,} clients: {UNCHANGED}; start it "
                          "with the same partition-id and num-partitions for the whole run")


def refuse_doubles(senders: Sequence[Sender]) -> None:
    """Raise `ClientError` if a client may be in two of the replies.

    Its records would then count twice, with noise for once.
    """
    if len({who.number for who in senders}) < len(senders) or len({who.of for who in senders}) > 1:
        numbers = ", ".join(f"{who.number} of {who.of}" for who in senders)
        raise ClientError(f"nodes say that they are number {numbers}, so that two may answer for one client: give each "
                          "its own partition-id, from 0, and all of them the same num-partitions")


def check_tensors(who: Sender, record: ArrayRecord, name: str, like: Mapping[str, Tensor] | None) -> Gradients:
    """Return the tensors of a reply's record `name`.

    Raises `ClientError` for names, shapes and types that differ from those of `like`, or without it for numbers that
    are not real. Nothing is read before what it claims to be is checked.
    """
    claims = {key: claim(array) for key, array in record.items()}
    shapes = {key: shape for key, (shape, _) in claims.items()}
    if like is not None and shapes != (expected := {key: tuple(value.shape) for key, value in like.items()}):
        raise ClientError(f"{who} sent {name} of shapes {_shapes(shapes)}, but {_shapes(expected)} are expected: "
                          f"{UNCHANGED}; {SAME}")
    for key, (shape, dtype) in claims.items():
        allowed = ("float32", "float64", "int64") if like is None else (type_name(like[key].dtype),)
        if dtype not in allowed:
            raise ClientError(f"{who} sent {name} {shown(key)} in {shown(dtype)}, but {' or '.join(allowed)} is "
                              f"expected: {UNCHANGED}; {SAME}")
        if not keeps_its_claim(record[key], shape, dtype):
            raise ClientError(f"{who} sent {name} {shown(key)} whose bytes are not an array of the shape and the type "
                              f"that it is said to have: {UNCHANGED}")
    return unpacked(record)


def check_group_counts(who: Sender, split: str, values: Gradients) -> GroupCounts:
    """Return evaluation counts; raise `ClientError` for counts that are negative or not finite."""
    return GroupCounts(**check_counts(who, split, values))


def check_counts(who: Sender, split: str, values: Gradients) -> Gradients:
    """Return tensors of an evaluation; raise `ClientError` for counts that are negative or not finite."""
    for name in ("labels", "predicted", "correct", "scores", "confusion"):
        if name in values and not bool((values[name].isfinite() & (values[name] >= 0)).all()):
            raise ClientError(f"{who} sent {split} counts {name!r} that are negative or not finite, but they are "
                              "numbers of records: look at the program that it runs")
    return values


def refuse_infinite(parts: Sequence[tuple[Gradients, Sender]], total: Gradients) -> None:
    """Raise `ClientError` naming the first client with a value that is not finite, or the client of the largest value
    if only their sum is not finite.
    """
    for tensors, who in parts:
        if not all(bool(value.isfinite().all()) for value in tensors.values()):
            raise ClientError(f"{who} sent values that are not finite: {UNCHANGED}; look at its records, or take a "
                              "smaller learning rate")
    if not all(bool(value.isfinite().all()) for value in total.values()):
        largest = max(parts, key=lambda part: max(float(value.abs().max()) for value in part[0].values()))
        raise ClientError(f"{largest[1]} sent values so large that their sum with others is not finite: {UNCHANGED}; "
                          "look at its records, or take a smaller learning rate")


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return shapes by name in words."""
    return safe(str(dict(shapes)))


def _bytes(message: Message) -> int:
    """Return about the number of bytes that a message's records hold; Flower's own count fails for empty texts."""
    return sum(sum(map(number_of_bytes, record.values())) if isinstance(record, ArrayRecord) else len(str(dict(record)))
               for record in message.content.values())
