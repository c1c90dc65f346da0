"""What the server checks of the replies of an existing app's clients, which trained by `train_privately`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import Tensor

from fedfair.node.node import ClientError
from fedfair.protocol.local_budget import LocalEpoch
from fedfair.protocol.round import Round
from strategies.server.known_clients import KnownClients
from strategies.server.replies.foreign_values import claim, keeps_its_claim, shown
from strategies.server.replies.reply_checks import MOST_RECORDS, UNCHANGED, check_size, whole

RECORD = "fedfair"
"""Name of the record that is added to the app's own messages."""


class Told(NamedTuple):
    """What a client says of its private training: its number of records, noisy counts where the plan asks, its name."""

    size: int
    counts: Tensor | None
    name: str


def checked(reply: Message, asked: Message | None, plan: Round | None, known: KnownClients, weight: str | None) -> Told:
    """Take what a client says of its training out of its reply; raise `ClientError` naming the node for a wrong one.

    Args:
        reply: The reply.
        asked: The latest message to its node, or None if there is none without an answer.
        plan: The plan in that message.
        known: The clients that answered before.
        weight: Name of the metric by which the app averages, or None.
    """
    node = reply.metadata.src_node_id
    if asked is None or plan is None:
        raise ClientError(f"node {node} answers twice, or was not asked in this round: {UNCHANGED}")
    if RECORD not in reply.content.config_records:
        raise ClientError(f"node {node} did not train privately: let its client call train_privately, and put what "
                          f"that returns into the reply, as ConfigRecord under {RECORD!r}")
    record = cast(ConfigRecord, reply.content.pop(RECORD))
    check_size(reply, asked)
    for name, arrays in reply.content.array_records.items():
        _check_arrays(node, arrays, asked.content.array_records.get(name))
    name = known.check(node, record.get("name"))
    size = _size(node, record, known.size(node, name))
    counts = _counts(node, record, plan, size)
    if not whole(record.get("step"), plan.step, plan.step):
        raise ClientError(f"node {node} answers the plan of step {shown(record.get('step'))}, but that of step "
                          f"{plan.step} was sent: {UNCHANGED}; put all that train_privately returns into the reply, "
                          "and let all nodes run the same version of fedfair")
    _check_weight(reply, weight)
    return Told(size, counts, name)


def refuse_infinite_average(arrays: ArrayRecord | None) -> None:
    """Raise `ClientError` if what the app's strategy averaged is not finite."""
    for name, value in (arrays.to_torch_state_dict() if arrays else {}).items():
        if not bool(value.isfinite().all()):
            raise ClientError(f"the weights {name} that the app's strategy averaged are not finite, although those of "
                              f"each node are: {UNCHANGED}; look at how it weighs the nodes")


def _size(node: int, record: ConfigRecord, known: int | None) -> int:
    """Return a client's number of records; refuse one that cannot be, or has changed."""
    size: Any = record.get("size")
    if not whole(size, 0, MOST_RECORDS):
        raise ClientError(f"node {node} says that it has {shown(size)} records, but a whole number from 0 to "
                          f"{MOST_RECORDS:,} is expected: {UNCHANGED}")
    if known is not None and size != known:
        raise ClientError(f"node {node} says that it has {size} records, but it had {known} before, which its privacy "
                          f"was charged for: {UNCHANGED}; leave its records alone during a run, and give each node a "
                          "name of its own")
    return int(size)


def _counts(node: int, record: ConfigRecord, plan: Round, size: int) -> Tensor | None:
    """Return a client's noisy counts in their shape; None where the plan asks for none, or the client has no record."""
    assert plan.local is not None
    sent = "counts" in record or "shape" in record
    if plan.query is None or LocalEpoch.of(size, plan.local.batch_size).steps == 0:
        if sent:
            raise ClientError(f"node {node} sent counts, but none were asked of its {size} records: {UNCHANGED}")
        return None
    expected = tuple(plan.query.counts(torch.empty(0), torch.empty(0, dtype=torch.long), len(plan.rates)).shape)
    values, shape = record.get("counts"), record.get("shape")
    if not (isinstance(values, list) and isinstance(shape, list) and tuple(shape) == expected
            and len(values) == math.prod(expected)):
        raise ClientError(f"node {node} sent counts of the shape {shown(shape)}, but {list(expected)} is expected: "
                          f"{UNCHANGED}")
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ClientError(f"node {node} sent counts that are not finite numbers: {UNCHANGED}")
    return torch.tensor(values, dtype=torch.float64).view(expected)


def _check_arrays(node: int, arrays: ArrayRecord, sent: ArrayRecord | None) -> None:
    """Refuse arrays that are not finite, or that differ in name, shape or kind from those that were `sent`."""
    claims = {name: claim(array) for name, array in arrays.items()}
    expected = {name: claim(array) for name, array in sent.items()} if sent is not None else claims
    if claims.keys() != expected.keys():
        raise ClientError(f"node {node} sent weights {shown(sorted(claims))}, but {shown(sorted(expected))} are "
                          f"expected: {UNCHANGED}")
    for name, (shape, dtype) in claims.items():
        if not keeps_its_claim(arrays[name], shape, dtype):
            raise ClientError(f"node {node} sent weights {shown(name)} whose bytes are not an array of the shape and "
                              f"the type that it is said to have: {UNCHANGED}")
        kind = np.dtype(expected[name][1]).kind
        if shape != expected[name][0] or np.dtype(dtype).kind != kind:
            raise ClientError(f"node {node} sent weights {shown(name)} of shape {shown(shape)} in {dtype}, but "
                              f"{expected[name][0]} in {expected[name][1]} is expected: {UNCHANGED}")
        if kind in "fc" and not np.isfinite(arrays[name].numpy()).all():
            raise ClientError(f"node {node} sent weights {shown(name)} that are not finite: {UNCHANGED}")


def _check_weight(reply: Message, weight: str | None) -> None:
    """Refuse a weight in the app's average that is not a number of records."""
    for record in reply.content.metric_records.values() if weight else ():
        value = record.get(str(weight), 0)
        if not (isinstance(value, int | float) and 0 <= value <= MOST_RECORDS):
            raise ClientError(f"node {reply.metadata.src_node_id} sent {weight} {shown(value)}, by which the app "
                              f"averages, but 0 to {MOST_RECORDS:,} is allowed: {UNCHANGED}")
