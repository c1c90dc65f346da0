"""The exchanges that every method uses, how a node finds those of a method, and what it promises of its answers.

A node promises for its own ledger what the noise that it adds itself guarantees. Under local trust that is all the
noise of a round, under distributed trust the shares of the node's own clients, and under central trust none: then exact
sums leave the node, and only its policy can say that it trusts the server.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from flwr.app import ConfigRecord, RecordDict

from fedfair.accounting.events import Event, Release
from fedfair.fairness.group_counts import MOST_CLASSES
from fedfair.fairness.reject_option import CELLS, RejectOption, score, score_counts
from fedfair.gradients.kernels import FastLinear
from fedfair.gradients.model_state import forgetting
from fedfair.mechanisms import histograms
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import source
from fedfair.node.node import Node
from fedfair.node.noisy_sums import Contribution
from fedfair.plugins.user_files import find_in_file
from fedfair.protocol.exchange import Exchange, Promise, Request, exchange
from fedfair.protocol.messages import BEFORE_THRESHOLD, BY_CLIENT, pack

MOST_CLIENTS = 100
"""Clients up to which metrics are computed for each."""

_PACKAGES = ("fedfair.node", "fedfair.risk")


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


def is_of_fedfair(name: str) -> bool:
    """Say whether fedfair itself has the exchange of this name; no file of the user's is looked at."""
    return isinstance(_of_fedfair(name), Exchange)


def find_exchange(name: str) -> Exchange:
    """Return the exchange "module.function" of fedfair, or of a file module.py of the user's.

    Raises `ValueError` if there is none.
    """
    value = _of_fedfair(name) or find_in_file(name)
    if not isinstance(value, Exchange):
        raise ValueError(f"this node has no exchange {name!r}: put the file {name.partition('.')[0]}.py of the method "
                         "into the folder from which the node runs, and decorate its function with @exchange")
    return value


@lru_cache(maxsize=64)
def _of_fedfair(name: str) -> Any:
    """Return what a module of fedfair calls by a name, or None."""
    module, _, function = name.partition(".")
    for package in _PACKAGES:
        if module.isidentifier() and find_spec(f"{package}.{module}") is not None:
            return getattr(import_module(f"{package}.{module}"), function, None)
    return None


def content(contribution: Contribution) -> RecordDict:
    """Return a contribution as it travels: sums under "sums", counts under "counts"."""
    records = RecordDict({"sums": pack(contribution.sums)})
    if contribution.counts is not None:
        records["counts"] = pack({"counts": contribution.counts})
    return records


@exchange("query", public_numbers)
def send_sizes(node: Node, request: Request) -> RecordDict:
    """Send the public numbers of training and validation records of each client by group, `[m, K]`.

    They are rounded as the task says.
    """
    sizes = {part: request.task.public_sizes(node.clients.group_sizes(part)) for part in ("train", "valid")}
    data = node.clients.together.train
    return RecordDict({"sizes": pack(sizes),
                       "groups": ConfigRecord({"names": list(data.names), "labels": list(data.labels)})})


@exchange("query", promise_counts)
def send_counts(node: Node, request: Request) -> RecordDict:
    """Send the noisy counts of the round's query."""
    return content(node.counts(request.weights, request.round))


@exchange("query", promise_scores)
def send_scores(node: Node, request: Request) -> RecordDict:
    """Send the numbers of validation records by group and score, with the clients' shares of the noise."""
    if not node.clients:
        return content(Contribution({}, None))
    options, groups = request.options, len(node.clients.together.valid.names)
    favourable, deviation = cast(int, options["favourable"]), cast(float, options["deviation"])
    counts = torch.zeros(groups, CELLS, dtype=torch.float64)
    for _, x, _, group in node.portions(request.weights, "valid"):
        with torch.no_grad(), FastLinear(), forgetting(node.model):
            counts += score_counts(score(node.model(x), favourable)[0], group, groups)
    for number in node.clients if deviation else ():
        draws = source(cast(str, options["key"]) or None, "scores", number + 1)
        counts = histograms.add_noise(cast(NoiseName, options["noise"]), counts, deviation, draws)
    return content(Contribution({"scores": counts}, None))


@exchange("train", promise_sum)
def send_gradient_sum(node: Node, request: Request) -> RecordDict:
    """Send the clipped gradient sum of the round's batch, with the counts that the round asks for."""
    return content(node.gradient_sum(request.weights, request.round))


@exchange("train", promise_local_epoch)
def send_local_epoch(node: Node, request: Request) -> RecordDict:
    """Send the locally trained weights, each times its client's share in the average."""
    return content(node.local_epochs(request.weights, request.round))


@exchange("train", promise_local_epoch)
def send_corrected_epochs(node: Node, request: Request) -> RecordDict:
    """Send the weights of each client after a local epoch whose steps the server's corrections change."""
    return content(node.corrected_epochs(request.weights, request.round, request.tensors("corrections")))


@exchange("evaluate")
def send_evaluation(node: Node, request: Request) -> RecordDict:
    """Send confusion counts, losses and gradient norms by group, for the parts in `splits`; not private.

    With a `threshold` these are of its decisions; those of the model are added as "SPLIT before threshold". Asked for
    `by-client`, the counts of each client's test records are added as "test by client", where test is among the splits.
    Raises `ValueError` for a class that is none, and for more classes or clients than can be counted.
    """
    options, splits = request.options, cast(list[str], request.options["splits"]) if node.clients else []
    rule = RejectOption.from_json(str(options["threshold"])) if options["threshold"] else None
    norms, clients = bool(options["gradient-norms"]), request.task.number_of_clients()
    favourable, classes = cast(int, options.get("favourable", -1)), node.clients.together.train.classes
    confusion, by_client = bool(options.get("confusion")), bool(options.get("by-client")) and "test" in splits
    if favourable >= classes or (confusion and classes > MOST_CLASSES) or (
            by_client and clients > MOST_CLIENTS):
        raise ValueError(f"the server asks for class {favourable} of {classes}, or for counts of more than "
                         f"{MOST_CLASSES} classes or {MOST_CLIENTS} clients: look at the program that it runs")
    count = partial(node.evaluate, request.weights, favourable=favourable if favourable >= 0 else None,
                    confusion=confusion)
    records = RecordDict()
    for split in splits:
        records[split] = pack(count(split, norms, rule).tensors())
        if rule:
            records[f"{split} {BEFORE_THRESHOLD}"] = pack(count(split, False).tensors())
    if by_client:
        records[f"test {BY_CLIENT}"] = pack(count("test", False, rule, by_client=clients).tensors())
    return records
