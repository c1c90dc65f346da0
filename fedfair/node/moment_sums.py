"""Releases of second moments: the sums of features and of their products, over all of a node's records at once."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.datasets import GroupedDataset
from fedfair.gradients.layers import Gradients
from fedfair.mechanisms.clipping import Flat
from fedfair.moments.sums import SENSITIVITY, moment_sums, zeros
from fedfair.node.exchanges import content
from fedfair.node.node import Contribution, Node, with_noise
from fedfair.node.promises import promise_sum
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.round import Round


class Wanted(NamedTuple):
    """Which sums are apart: features of `groups` groups, K or 1 for all records, and second moments `by_group`."""

    groups: int
    by_group: bool

    @staticmethod
    def asked(request: Request) -> Wanted:
        """Return what the options of a request want."""
        return Wanted(cast(int, request.options["groups"]), bool(request.options["by-group"]))

    def number(self, data: GroupedDataset) -> Tensor:
        """Return the number of each record's group, `[n]`; raise `ValueError` for another number of groups."""
        if self.groups not in (1, len(data.names)):
            raise ValueError(f"the server asks for moments of {self.groups} groups, but there are {len(data.names)}")
        return data.group if self.groups > 1 else torch.zeros_like(data.group)


def record_moments(node: Node, round_: Round, wanted: Wanted) -> Contribution:
    """Return the sums over all records of the node's clients, with each client's share of the noise.

    Args:
        node: The node.
        round_: The plan: every record takes part, and its rule allows for what one record adds.
        wanted: Which sums are apart.

    Raises:
        ValueError: For a round whose noise would be too little for what one record adds, or that samples records.
    """
    rule = _flat(round_)
    if rule.clip_norm < SENSITIVITY:
        raise ValueError(f"the round's noise is for records that add at most {rule.clip_norm:g}, but one adds up to "
                         f"{SENSITIVITY:g} to the moments")
    if not node.clients:
        return Contribution({}, None)
    return with_noise(_sums(node.clients.together.train, wanted), None, round_, node.clients)


def participant_moments(node: Node, round_: Round, wanted: Wanted) -> Contribution:
    """Return the sums over participants, those of each clipped as one vector to the rule's norm, with noise.

    Args:
        node: The node, each of whose clients is a participant.
        round_: The plan: every participant takes part.
        wanted: Which sums are apart.

    Raises:
        ValueError: For a round whose rule bounds nothing, or that samples participants.
    """
    rule = _flat(round_)
    if not node.clients:
        return Contribution({}, None)
    total = {name: value.clone() for name, value in _zeros(node.clients.together.train, wanted).items()}
    for number in node.clients:
        own = _sums(node.clients.training(number), wanted)
        norm = torch.linalg.vector_norm(torch.stack([value.norm() for value in own.values()]))
        factor = min(1.0, rule.clip_norm / max(float(norm), rule.clip_norm))
        total = {name: value + factor * own[name] for name, value in total.items()}
    return with_noise(total, None, round_, node.clients)


@exchange("train", promise_sum)
def send_moments(node: Node, request: Request) -> RecordDict:
    """Send second moments and sums of features over all records, with the clients' noise."""
    return content(record_moments(node, request.round, Wanted.asked(request)))


@exchange("train", promise_sum)
def send_participant_moments(node: Node, request: Request) -> RecordDict:
    """Send the clipped second moments of all participants, added up, with the clients' noise."""
    return content(participant_moments(node, request.round, Wanted.asked(request)))


def _flat(round_: Round) -> Flat:
    """Return the round's rule; raise `ValueError` unless it is one norm for all and everybody takes part."""
    if not isinstance(round_.rule, Flat) or set(round_.rates) != {1.0}:
        raise ValueError("moments are released of all records at once, with one bound for all: the round has the rates "
                         f"{round_.rates} and the rule {type(round_.rule).__name__}")
    return round_.rule


def _sums(data: GroupedDataset, wanted: Wanted) -> Gradients:
    """Return the exact sums over the records of one data set."""
    return moment_sums(data.x, data.y, wanted.number(data), wanted.groups, data.classes, wanted.by_group)


def _zeros(data: GroupedDataset, wanted: Wanted) -> Gradients:
    """Return the sums over no record."""
    return dict(zeros(data.x.shape[1], wanted.groups, data.classes, wanted.by_group))
