"""Releases of second moments: the sums of features and of their products, over all of a node's records at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.datasets import GroupedDataset
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.moments.sums import SENSITIVITY, mixed, moment_sums, zeros
from fedfair.node.exchanges import content, promise_of_clients, promise_of_participants, promise_sum
from fedfair.node.masked_sums import masked
from fedfair.node.node import Node
from fedfair.node.noisy_sums import Contribution, with_noise
from fedfair.protocol.exchange import Promise, Request, exchange
from fedfair.protocol.round import Round


class Wanted(NamedTuple):
    """Which sums are apart: features of `groups` groups, K or 1 for all records, and second moments `by_group`.

    With `mixing`, sums of features are mixed for the contrast of two classes (`fedfair.moments.sums`). `held` says
    by client of the run and group, `[clients * K]`, whether the client has records of the group, as its public numbers
    tell; empty if every client is to add noise to the numbers of all groups.
    """

    groups: int
    by_group: bool
    held: tuple[bool, ...] = ()
    mixing: bool = False

    @staticmethod
    def asked(request: Request) -> Wanted:
        """Return what the options of a request want."""
        return Wanted.of(request.options)

    @staticmethod
    def of(options: Mapping[str, object]) -> Wanted:
        """Return what options want, as a server sends them."""
        held = tuple(map(bool, cast(list[int], options.get("held", []))))
        return Wanted(cast(int, options["groups"]), bool(options["by-group"]), held, bool(options.get("mixing", False)))

    def of_client(self, number: int) -> Tensor:
        """Return which groups' numbers a client sends, `[K]`; raise `ValueError` if that is not said of it."""
        own = self.held[number * self.groups : (number + 1) * self.groups]
        if len(own) != self.groups:
            raise ValueError(f"the server says of {len(self.held)} clients and groups who holds what, which leaves out "
                             f"client {number} of {self.groups} groups")
        return torch.tensor(own)

    def number(self, data: GroupedDataset) -> Tensor:
        """Return the number of each record's group, `[n]`; raise `ValueError` for another number of groups."""
        if self.groups not in (1, len(data.names)):
            raise ValueError(f"the server asks for moments of {self.groups} groups, but there are {len(data.names)}")
        return data.group if self.groups > 1 else torch.zeros_like(data.group)


def record_moments(node: Node, round_: Round, wanted: Wanted) -> Contribution:
    """Return the sums over all records of the node's clients, with each client's share of the noise."""
    if not node.clients:
        return Contribution({}, None)
    if wanted.held and round_.trust is Trust.LOCAL:
        return _of_held_groups(node, round_, wanted)
    return with_noise(sums_of_records(node, round_, wanted), None, round_, node.clients)


def participant_moments(node: Node, round_: Round, wanted: Wanted) -> Contribution:
    """Return the sums over participants, with each one's share of the noise."""
    if not node.clients:
        return Contribution({}, None)
    return with_noise(sums_of_participants(node, round_, wanted), None, round_, node.clients)


def sums_of_records(node: Node, round_: Round, wanted: Wanted) -> Gradients:
    """Return the exact sums over all records of the node's clients.

    Args:
        node: The node.
        round_: The plan: every record takes part, and its rule allows for what one record adds.
        wanted: Which sums are apart.

    Raises:
        ValueError: For a round whose noise would be too little for what one record adds, or that samples records.
    """
    _refuse_little_noise(round_)
    return _sums(node.clients.together.train, wanted)


def _of_held_groups(node: Node, round_: Round, wanted: Wanted) -> Contribution:
    """Return the sums of clients that each add noise to the numbers of their own groups alone; all others are zero.

    What a client sends of a group is noisy, or zero whatever its records are. So nothing of them leaves without noise,
    whatever the server says of who holds what.
    """
    _refuse_little_noise(round_)
    if wanted.mixing:
        raise ValueError("the server asks for the numbers of each client's own groups, but mixed with those of others")
    total = _zeros(node.clients.together.train, wanted)
    for number in node.clients:
        noisy = with_noise(_sums(node.clients.training(number), wanted), None, round_, [number]).sums
        held = wanted.of_client(number)
        own = {name: value if len(value) == 1 else value[held] for name, value in noisy.items()}
        for name, value in own.items():
            total[name][held if len(total[name]) > 1 else slice(None)] += value
    return Contribution(total, None)


def sums_of_participants(node: Node, round_: Round, wanted: Wanted) -> Gradients:
    """Return the exact sums over participants, those of each clipped as one vector to the rule's norm.

    Args:
        node: The node, each of whose clients is a participant.
        round_: The plan: every participant takes part.
        wanted: Which sums are apart.

    Raises:
        ValueError: For a round whose rule bounds nothing, or that samples participants.
    """
    rule = _flat(round_)
    total = {name: value.clone() for name, value in _zeros(node.clients.together.train, wanted).items()}
    for number in node.clients:
        own = _sums(node.clients.training(number), wanted)
        norm = torch.linalg.vector_norm(torch.stack([value.norm() for value in own.values()]))
        factor = min(1.0, rule.clip_norm / max(float(norm), rule.clip_norm))
        total = {name: value + factor * own[name] for name, value in total.items()}
    return total


def promise_moments(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise the moments by the noise of the clients that add it.

    Where clients send the numbers of their own groups alone, those of a group have the noise of as few of them.
    """
    wanted = Wanted.asked(request)
    if not (node.clients and wanted.held and request.round.trust is Trust.LOCAL):
        return promise_sum(node, request, trusts_server)
    adding = torch.stack([wanted.of_client(number) for number in node.clients]).sum(0)
    return promise_of_clients(int(adding[adding > 0].min()) if adding.any() else 1, request, trusts_server)


@exchange("train", promise_moments)
def send_moments(node: Node, request: Request) -> RecordDict:
    """Send second moments and sums of features over all records, with the clients' noise."""
    return content(record_moments(node, request.round, Wanted.asked(request)))


@exchange("train", promise_of_participants)
def send_participant_moments(node: Node, request: Request) -> RecordDict:
    """Send the clipped second moments of all participants, added up, with the clients' noise."""
    return content(participant_moments(node, request.round, Wanted.asked(request)))


@exchange("train", promise_sum)
def send_masked_moments(node: Node, request: Request) -> RecordDict:
    """Send the same sums as `send_moments`, rounded to the grid of their noise, under masks (`masked_sums`)."""
    return masked(node, request, sums_of_records(node, request.round, Wanted.asked(request)),
                  len(node.clients.together.train))


@exchange("train", promise_of_participants)
def send_masked_participant_moments(node: Node, request: Request) -> RecordDict:
    """Send the same sums as `send_participant_moments`, rounded to the grid of their noise, under masks."""
    return masked(node, request, sums_of_participants(node, request.round, Wanted.asked(request)), len(node.clients))


def _refuse_little_noise(round_: Round) -> None:
    """Raise `ValueError` for a round whose noise is too little for what one record adds, or that samples records."""
    rule = _flat(round_)
    if rule.clip_norm < SENSITIVITY:
        raise ValueError(f"the round's noise is for records that add at most {rule.clip_norm:g}, but one adds up to "
                         f"{SENSITIVITY:g} to the moments")


def _flat(round_: Round) -> Flat:
    """Return the round's rule; raise `ValueError` unless it is one norm for all and everybody takes part."""
    if not isinstance(round_.rule, Flat) or set(round_.rates) != {1.0}:
        raise ValueError("moments are released of all records at once, with one bound for all: the round has the rates "
                         f"{round_.rates} and the rule {type(round_.rule).__name__}")
    return round_.rule


def _sums(data: GroupedDataset, wanted: Wanted) -> Gradients:
    """Return the exact sums over the records of one data set."""
    sums = moment_sums(data.x, data.y, wanted.number(data), wanted.groups, data.classes, wanted.by_group)
    return {**sums, "first": mixed(sums["first"])} if wanted.mixing else sums


def _zeros(data: GroupedDataset, wanted: Wanted) -> Gradients:
    """Return the sums over no record."""
    return dict(zeros(data.x.shape[1], wanted.groups, data.classes, wanted.by_group))
