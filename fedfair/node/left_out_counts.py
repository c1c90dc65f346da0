"""Counts of decisions on training records that carry noise, each by a classifier that was trained without the record.

What a record is counted as follows from the record and from what was released before (`moments.leave_one_out`). So a
record is in one cell of a table, as where records are held out, and the promises are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.accounting.events import LEFT_OUT
from fedfair.datasets import GroupedDataset
from fedfair.fairness.decision_counts import CONFUSION, Deciding
from fedfair.moments.leave_one_out import LeftOut
from fedfair.node.node import Node
from fedfair.node.private_counts import FRONT, MODEL, SITES, Counted, promise_counts_of, promise_model_counts
from fedfair.protocol.exchange import Promise, Request, exchange
from fedfair.protocol.messages import pack

LEFT = "left"
"""Name of the record with the tensors of `LeftOut`."""


class _Scored(NamedTuple):
    """Some training records, and their scores by classifiers that were trained without them, `[n, points]`."""

    y: Tensor
    group: Tensor
    site: Tensor
    scores: Tensor


@exchange("evaluate", promise_model_counts)
def send_left_out_counts(node: Node, request: Request) -> RecordDict:
    """Send the model's decisions and scores by group and label, with the clients' noise.

    With the option by-site they are apart for each site.
    """
    asked, options = Counted.asked(request.options, (LEFT_OUT,)), request.options
    if not node.clients:
        return RecordDict()
    data, by_site = node.clients.together.train, bool(options["by-site"])
    favourable = cast(int, options["favourable"])
    deciding = Deciding(len(data.names), data.classes, favourable if favourable >= 0 else None, None,
                        len(data.sites) if by_site else 1)
    counts = deciding.zeros
    for part in _scored(node, request):
        logits = torch.stack([-part.scores[:, 0] / 2, part.scores[:, 0] / 2], 1)
        found = deciding.counts(logits, part.y, part.group, part.site if by_site else None)
        counts = {name: table + found[name] for name, table in counts.items()}
    return RecordDict({"sums": pack(asked.noisy(counts, node, SITES if by_site else MODEL))})


def promise_left_out_counts(node: Node, request: Request, trusts_server: bool) -> Promise:
    """Promise one release of the counts of several classifiers: a record is in one cell of each."""
    return promise_counts_of(node, request, len(request.tensors(LEFT)["weights"]))


@exchange("evaluate", promise_left_out_counts)
def send_left_out_front_counts(node: Node, request: Request) -> RecordDict:
    """Send how often each classifier decides a label as a class, by group, with the clients' noise."""
    asked = Counted.asked(request.options, (LEFT_OUT,))
    if not node.clients:
        return RecordDict()
    data, points = node.clients.together.train, len(request.tensors(LEFT)["weights"])
    counts = torch.zeros(points, len(data.names), data.classes, data.classes, dtype=torch.float64)
    for part in _scored(node, request):
        for point, scores in enumerate(part.scores.T):
            places = (part.group, part.y, (scores > 0).long())
            counts[point].index_put_(places, torch.ones(len(scores), dtype=torch.float64), accumulate=True)
    return RecordDict({"sums": pack(asked.noisy({CONFUSION: counts}, node, FRONT))})


def _scored(node: Node, request: Request) -> Iterator[_Scored]:
    """Yield the training records, some at a time."""
    left = LeftOut.of_tensors({name: tensor.cpu() for name, tensor in request.tensors(LEFT).items()})
    data = node.clients.together.train
    effects = _effects(node, left, data)
    for rows in data.portions(torch.arange(len(data))):
        y, group = data.y[rows].cpu(), data.group[rows].cpu()
        site = data.site[rows].cpu() if data.sites else group
        yield _Scored(y, group, site, left.scores(data.features(rows), effects[rows]))


def _effects(node: Node, left: LeftOut, data: GroupedDataset) -> Tensor:
    """Return what the records add to their scores, `[n, 2]`, computed once for the front and for the model."""
    trained = (left.regression.trained, left.regression.pull)
    if node.left_out is None or not all(map(torch.equal, node.left_out[0], trained)):
        parts = [left.effects(data.features(rows), data.y[rows]) for rows in data.portions(torch.arange(len(data)))]
        node.left_out = trained, torch.cat(parts) if parts else torch.zeros(0, 2, dtype=torch.float64)
    return node.left_out[1]
