"""Releases of second moments: the sums of features and of their products, over all of a node's records at once."""

from __future__ import annotations

import torch
from flwr.app import RecordDict

from fedfair.datasets import GroupedDataset
from fedfair.gradients.layers import Gradients
from fedfair.mechanisms.clipping import Flat
from fedfair.moments.sums import SENSITIVITY, moment_sums, zeros
from fedfair.node.exchanges import content
from fedfair.node.node import Contribution, Node, with_noise
from fedfair.node.promises import promise_sum
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


def record_moments(node: Node, round_: Round, by_group: bool) -> Contribution:
    """Return the sums over all records of the node's clients, with each client's share of the noise.

    Args:
        node: The node.
        round_: The plan: every record takes part, and its rule allows for what one record adds.
        by_group: Whether second moments are added up for each group.

    Raises:
        ValueError: For a round whose noise would be too little for what one record adds, or that samples records.
    """
    rule = _flat(round_)
    if rule.clip_norm < SENSITIVITY:
        raise ValueError(f"the round's noise is for records that add at most {rule.clip_norm:g}, but one adds up to "
                         f"{SENSITIVITY:g} to the moments")
    if not node.clients:
        return Contribution({}, None)
    return with_noise(_sums(node.clients.together.train, by_group), None, round_, node.clients)


def participant_moments(node: Node, round_: Round, by_group: bool) -> Contribution:
    """Return the sums over participants, those of each clipped as one vector to the rule's norm, with noise.

    Args:
        node: The node, each of whose clients is a participant.
        round_: The plan: every participant takes part.
        by_group: Whether second moments are added up for each group.

    Raises:
        ValueError: For a round whose rule bounds nothing, or that samples participants.
    """
    rule = _flat(round_)
    if not node.clients:
        return Contribution({}, None)
    total = {name: value.clone() for name, value in _zeros(node.clients.together.train, by_group).items()}
    for number in node.clients:
        own = _sums(node.clients.training(number), by_group)
        norm = torch.linalg.vector_norm(torch.stack([value.norm() for value in own.values()]))
        factor = min(1.0, rule.clip_norm / max(float(norm), rule.clip_norm))
        total = {name: value + factor * own[name] for name, value in total.items()}
    return with_noise(total, None, round_, node.clients)


@exchange("train", promise_sum)
def send_moments(node: Node, request: Request) -> RecordDict:
    """Send second moments and sums of features over all records, with the clients' noise."""
    return content(record_moments(node, request.round, bool(request.options["by-group"])))


@exchange("train", promise_sum)
def send_participant_moments(node: Node, request: Request) -> RecordDict:
    """Send the clipped second moments of all participants, added up, with the clients' noise."""
    return content(participant_moments(node, request.round, bool(request.options["by-group"])))


def _flat(round_: Round) -> Flat:
    """Return the round's rule; raise `ValueError` unless it is one norm for all and everybody takes part."""
    if not isinstance(round_.rule, Flat) or set(round_.rates) != {1.0}:
        raise ValueError("moments are released of all records at once, with one bound for all: the round has the rates "
                         f"{round_.rates} and the rule {type(round_.rule).__name__}")
    return round_.rule


def _sums(data: GroupedDataset, by_group: bool) -> Gradients:
    """Return the exact sums over the records of one data set."""
    return moment_sums(data.x, data.y, data.group, len(data.names), data.classes, by_group)


def _zeros(data: GroupedDataset, by_group: bool) -> Gradients:
    """Return the sums over no record."""
    return dict(zeros(data.x.shape[1], len(data.names), data.classes, by_group))
