"""Counts of decisions on held-out records that carry noise: of the run's model, and of linear classifiers of a front.

A record adds 1 to one cell of every classifier, so it moves the counts of m classifiers by sqrt(m) together. Of the
run's model two tables are counted, weighted so that a record moves both by 1 together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from fedfair.accounting.events import Release
from fedfair.datasets import GroupedDataset
from fedfair.fairness.decision_counts import CONFUSION, Deciding, factors
from fedfair.fairness.reject_option import RejectOption
from fedfair.gradients.kernels import FastLinear
from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.model_state import forgetting
from fedfair.mechanisms.noise import NoiseName, add_noise
from fedfair.mechanisms.randomness import Source, source
from fedfair.node.front_counts import HELD_OUT, confusions
from fedfair.node.node import Node
from fedfair.protocol.exchange import Promise, Request, exchange
from fedfair.protocol.messages import pack

MODEL, FRONT, SITES = "private counts", "private front counts", "private counts by site"
"""Purposes of the noise."""

_MOST = 100


class Counted(NamedTuple):
    """What is counted, and the noise that each client adds.

    Attributes:
        split: "valid" or "test"; or `LEFT_OUT`, for training records.
        deviation: Standard deviation of a client's noise on every count; 0 if the server adds all of it.
        noise: How it is sampled.
        key: What it follows from, or None if it comes from the operating system.
    """

    split: str
    deviation: float
    noise: NoiseName
    key: str | None

    @staticmethod
    def asked(options: ConfigRecord, parts: Sequence[str] = HELD_OUT) -> Counted:
        """Return what the options of a request ask for; raise `ValueError` for another part than these."""
        made = Counted(cast(str, options["split"]), cast(float, options["deviation"]),
                       cast(NoiseName, options["noise"]), cast(str, options["key"]) or None)
        if made.split not in parts:
            raise ValueError(f"the server asks for counts of the part {made.split!r}: only those of "
                             f"{' and '.join(parts)} are counted")
        return made

    def noisy(self, counts: Gradients, node: Node, purpose: str) -> Gradients:
        """Return tables of counts with the noise of each of the node's clients."""
        for number in node.clients if self.deviation else ():
            draws = source(self.key, f"{purpose} {self.split}", number + 1)
            counts = with_table_noise(self.noise, counts, self.deviation, draws)
        return counts


def with_table_noise(noise: NoiseName, counts: Mapping[str, Tensor], deviation: float, draws: Source) -> Gradients:
    """Add Gaussian noise to tables of counts that are released together.

    Args:
        noise: How noise is sampled.
        counts: Counts by table.
        deviation: Standard deviation that a release of one table alone would have.
        draws: Where noise comes from.
    """
    share = factors(counts)
    scaled = {name: value / share[name] for name, value in counts.items()}
    return {name: value * share[name] for name, value in add_noise(noise, scaled, deviation, draws).items()}


def promise_model_counts(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise one release of a held-out part's counts, by the noise of each client: a record is in one cell."""
    return promise_counts_of(node, request, 1)


def promise_front_counts(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise one release of the counts of several classifiers: a record is in one cell of each."""
    return promise_counts_of(node, request, len(request.tensors("front")["weights"]))


@exchange("evaluate", promise_model_counts)
def send_private_counts(node: Node, request: Request) -> RecordDict:
    """Send the model's decisions and scores on a held-out part by group and label, with the clients' noise.

    With the option by-site they are apart for each site.
    """
    asked, options = Counted.asked(request.options), request.options
    if not node.clients:
        return RecordDict()
    data: GroupedDataset = getattr(node.clients.together, asked.split)
    rule = RejectOption.from_json(str(options["threshold"])) if options["threshold"] else None
    favourable, by_site = cast(int, options["favourable"]), bool(options["by-site"])
    deciding = Deciding(len(data.names), data.classes, favourable if favourable >= 0 else None, rule,
                        len(data.sites) if by_site else 1)
    counts = _decided(node, request, asked.split, deciding)
    return RecordDict({"sums": pack(asked.noisy(counts, node, SITES if by_site else MODEL))})


def _decided(node: Node, request: Request, split: str, deciding: Deciding) -> Gradients:
    """Count the model's decisions on a held-out part by table, exactly."""
    part: GroupedDataset = getattr(node.clients.together, split)
    total = deciding.zeros
    for rows, x, y, group in node.portions(request.weights, split):
        with torch.no_grad(), FastLinear(), forgetting(node.model):
            site = part.site[rows] if deciding.sites > 1 else None
            counted = deciding.counts(node.model(x), y, group, site)
        total = {name: value + counted[name] for name, value in total.items()}
    return total


@exchange("evaluate", promise_front_counts)
def send_private_front_counts(node: Node, request: Request) -> RecordDict:
    """Send how often each classifier decides a label as a class, by group, with the clients' noise.

    Raises `ValueError` for more classifiers than anybody compares under noise.
    """
    asked, weights = Counted.asked(request.options), request.tensors("front")["weights"].cpu()
    if len(weights) > _MOST:
        raise ValueError(f"the server asks for {len(weights)} classifiers: at most {_MOST} are counted with noise")
    if not node.clients:
        return RecordDict()
    counts = {CONFUSION: confusions(getattr(node.clients.together, asked.split), weights)}
    return RecordDict({"sums": pack(asked.noisy(counts, node, FRONT))})


def promise_counts_of(node: Node, request: Request, classifiers: int) -> Promise:
    """Promise the counts of some classifiers by the noise of the node's clients: a record is in one cell of each.

    Args:
        node: The node.
        request: What the server asks for, with the deviation of each client's noise.
        classifiers: Number of classifiers.

    Raises:
        ValueError: If the noise would come from a seed.
    """
    if request.options["key"]:
        raise ValueError("the noise would come from a seed")
    deviation = cast(float, request.options["deviation"]) * math.sqrt(len(node.clients))
    return Promise(Release(1.0, deviation / math.sqrt(classifiers)))
