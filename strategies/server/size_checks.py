"""What the server checks of the numbers of records that nodes tell at first, which it plans with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, Message

from fedfair.gradients.layers import Gradients
from fedfair.node.node import ClientError
from strategies.server.foreign_text import shown
from strategies.server.population import Population
from strategies.server.reply_checks import MOST_RECORDS, Sender, config, sender
from strategies.server.tensor_checks import check_tensors


def population_of(replies: Sequence[Message]) -> Population:
    """Return the population that the nodes describe; raise `ClientError` for one that does not fit together."""
    senders = [sender(reply) for reply in replies]
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
