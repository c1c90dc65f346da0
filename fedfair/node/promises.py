"""What a node can promise about its answers by the noise that it adds itself, for its own ledger.

Under local trust that is all the noise of a round, under distributed trust the shares of the node's own clients, and
under central trust none: then exact sums leave the node, and only its policy can say that it trusts the server.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from fedfair.accounting.events import Event, Release
from fedfair.fairness.reject_option import CELLS
from fedfair.mechanisms import histograms
from fedfair.node.node import Node
from fedfair.protocol.exchange import Promise, Request


def public_numbers(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise that the answer has numbers that are public by assumption, and no more."""
    return Promise(None)


def promise_sum(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise what the noise on a round's sum, and on the counts that it asks for, guarantees."""
    return promise_of_clients(len(node.clients), request, trusts_server)


def promise_of_clients(clients: int, request: Request, trusts_server: bool) -> Promise:
    """Promise what the noise of some of a node's clients on every number of a round's sum guarantees."""
    round_ = request.round
    return Promise(_worst(round_.own_event(clients, trusts_server)), batch=round_.label)


def promise_of_participants(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise to a record what the noise on a sum of participants' clipped contributions guarantees.

    The round's noise is for a participant that is there or not. A record more changes its contribution from one vector
    within the clip norm to another, by twice the norm at most, so to a record the noise is half as large. That holds
    where participants are sampled too: the hockey-stick divergence of two mixtures with a common part is at most that
    of a mixture with twice the norm from the common part alone (Balle, Barthe and Gaboardi 2018, Theorem 2).
    """
    promise = promise_sum(node, request, trusts_server)
    if promise.release is None:
        return promise
    return promise._replace(release=promise.release._replace(multiplier=promise.release.multiplier / 2))


def promise_counts(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise the counts of a round together with the gradient sum that follows: both read one batch.

    The sum's noise is promised before the counts are known, so that they cannot choose it.
    """
    clients, round_ = len(node.clients), request.round
    if round_.query is None:
        raise ValueError("the round has no query to count")
    counted, alone = (_worst(plan.own_event(clients, trusts_server)) for plan in (round_, replace(round_, query=None)))
    return Promise(counted, batch=round_.label, follows=alone)


def promise_local_epoch(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise one charge that covers the local epoch of each of the node's clients.

    That is most steps, at the largest rate, with the least noise. So which client holds a record need not be known, nor
    stay as it is from run to run.
    """
    round_ = request.round
    if round_.local is None:
        raise ValueError("the round does not say how to train")
    epochs = [round_.local.epoch(client) for client in node.clients]
    charged = [_worst(round_.local_event(client, (True,) * len(round_.rates))) for client in node.clients]
    rate = max((release.rate for release in charged), default=0.0)
    multiplier = min((release.multiplier for release in charged), default=math.inf)
    return Promise(Release(rate, multiplier), max((epoch.steps for epoch in epochs), default=0))


def promise_scores(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise the search for a threshold: one release about all validation records, by the noise of each client."""
    if request.options["key"]:
        raise ValueError("the noise would come from a seed")
    deviation = cast(float, request.options["deviation"]) * math.sqrt(len(node.clients))
    return Promise(Release(1.0, deviation / histograms.sensitivity(CELLS)))


def _worst(event: Event) -> Release:
    """Return what covers a record of any group; groups differ by their rates alone."""
    release = event.guaranteed(0)
    return Release(max(event.rates), release.multiplier)
