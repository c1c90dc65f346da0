"""What the server checks of the numbers of records that nodes tell at first, which it plans with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, Message

from fedfair.datasets import GroupedDataset
from fedfair.gradients.layer_gradients import Gradients
from fedfair.node.node import ClientError
from fedfair.protocol.fields import MOST_CLIENTS
from strategies.server.population import Population
from strategies.server.replies.foreign_values import shown
from strategies.server.replies.reply_checks import (
    MOST_RECORDS,
    SAME,
    Sender,
    check_program,
    check_tensors,
    config,
    sender,
)


def population_of(replies: Sequence[Message], in_a_row: bool = False) -> Population:
    """Return the population that the nodes describe; raise `ClientError` for one that does not fit together.

    Clients that are numbered `in_a_row` are those of the first node, then those of the second, and so on.
    """
    senders = [sender(reply) for reply in replies]
    senders = numbered_in_a_row(senders) if in_a_row else senders
    for reply in replies:
        check_program(reply)
    parts = [check_sizes(who, reply) for who, reply in zip(senders, replies, strict=True)]
    for who, (_, names, labels) in zip(senders, parts, strict=True):
        if (names, labels) != parts[0][1:]:
            raise ClientError(f"node {who.node} and node {senders[0].node} disagree on the names of groups or classes: "
                              "give all nodes the same data set and settings")
    numbers = torch.tensor([client for who in senders for client in who.clients], dtype=torch.int64)
    order = numbers.argsort()
    if not torch.equal(numbers[order], torch.arange(len(numbers))):
        clients = "; ".join(f"node {who.node} {len(who.clients):,}" for who in senders[:10])
        raise ClientError(f"the clients of the nodes are not numbered from 0 on without gaps ({clients} clients): look "
                          "at the data and at num-partitions of each")
    train = torch.cat([sizes["train"] for sizes, _, _ in parts])[order]
    valid = torch.cat([sizes["valid"] for sizes, _, _ in parts])
    if int(train.sum()) > MOST_RECORDS:
        largest = max(zip(senders, parts, strict=True), key=lambda one: int(one[1][0]["train"].sum()))[0]
        raise ClientError(f"the clients say that they have {int(train.sum()):,} records, most of them {largest}, but "
                          f"at most {MOST_RECORDS:,} are allowed: look at its data, or leave it out")
    return Population(parts[0][1], tuple(map(tuple, train.tolist())), tuple(valid.sum(0).tolist()), parts[0][2],
                      int(valid.sum(1).max()), {who.node: who.clients for who in senders})


def refuse_absent_groups(told: Population) -> None:
    """Raise `ClientError` for a group of which no node has a training record."""
    absent = [name for name, size in zip(told.names, told.by_group, strict=True) if size == 0]
    if absent:
        raise ClientError(f"no node has a training record of group {', '.join(map(shown, absent))}: leave the group "
                          "out of the schema, or put it together with another one in all files")


def refuse_other_study(replies: Sequence[Message], known: GroupedDataset, told: Population) -> None:
    """Raise `ClientError` for nodes with files of their own that are no clients of the server's schema.

    `known` has the groups and classes of the schema.
    """
    first = sender(replies[0])
    if (told.names, told.labels) != (known.names, known.labels):
        raise ClientError(f"node {first.node} tells the groups and classes {shown(told.names)} and "
                          f"{shown(told.labels)}, which are not those of the schema: give all nodes the same schema")
    for who in map(sender, replies):
        if not who.clients:
            raise ClientError(f"node {who.node} says that it holds no clients, but with partition nodes each is one, "
                              f"or has one for each of its sites: {SAME}")
    if len(told.sizes) > MOST_CLIENTS:
        most = max(map(sender, replies), key=lambda who: len(who.clients))
        raise ClientError(f"the nodes say that they hold {len(told.sizes):,} clients, most of them node {most.node}, "
                          f"but at most {MOST_CLIENTS:,} are allowed: let it have fewer sites")


def numbered_in_a_row(senders: Sequence[Sender]) -> list[Sender]:
    """Return nodes with their clients numbered in the order of the nodes, without gaps, however many each has."""
    first, numbered = 0, {}
    for who in sorted(senders, key=lambda who: who.number):
        numbered[who.number] = who._replace(clients=range(first, first + len(who.clients)))
        first += len(who.clients)
    return [numbered[who.number] for who in senders]


def check_sizes(who: Sender, reply: Message) -> tuple[Gradients, tuple[str, ...], tuple[str, ...]]:
    """Return the numbers of records `[m, K]` by part, and the names of groups and classes.

    Raises `ClientError` for impossible ones.
    """
    record = config(reply, "groups")
    names, labels = (_names(who, record.get(key)) for key in ("names", "labels"))
    like = torch.empty(len(who.clients), len(names), dtype=torch.int64, device="meta")
    sent = reply.content.array_records.get("sizes", ArrayRecord())
    sizes = check_tensors(who, sent, "sizes", {"train": like, "valid": like})
    for part, values in sizes.items():
        wrong = values[(values < 0) | (values > MOST_RECORDS)]
        if len(wrong):
            raise ClientError(f"{who} says that it has {int(wrong[0]):,} {part} records of a group, but 0 to "
                              f"{MOST_RECORDS:,} are allowed: look at its data, or leave it out")
    return sizes, names, labels


def _names(who: Sender, values: Any) -> tuple[str, ...]:
    """Return names of groups or classes; refuse what is not a list of different texts."""
    texts = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if texts and values and len(set(values)) == len(values):
        return tuple(values)
    raise ClientError(f"node {who.node} sent {shown(values)} as names of groups or classes, but a list of different "
                      "texts is expected")
