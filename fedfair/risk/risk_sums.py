"""What a node sends for the risk terms: exact sums over its records, which only a trusted server may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack
from fedfair.protocol.round import refuse_distrust
from fedfair.risk.derivatives import (
    clipping_effect,
    hessian_products,
    losses_and_gradients,
    repeated_samples,
    samples,
)

_PURPOSE = "risk terms"


@exchange("query")
def send_clipping_effect(node: Node, request: Request) -> RecordDict:
    """Send a batch's gradient with and without clipping, and each group's loss and gradient over all its records.

    Raises `ValueError` unless the server is trusted.
    """
    weights, round_ = request.weights, request.round
    refuse_distrust(round_, _PURPOSE)
    if not node.clients:
        return RecordDict({"sums": pack({})})
    sums, data = clipping_effect(node, weights, round_), node.training_records(weights)
    sums["records"] = torch.bincount(data.group, minlength=len(data.names))
    sums["losses"], sums["gradients"] = losses_and_gradients(node.model, data)
    return RecordDict({"sums": pack(sums)})


@exchange("query")
def send_hessian_products(node: Node, request: Request) -> RecordDict:
    """Send each group's Hessian, over a sample of its records, times the vectors that the server sent for the group.

    Raises `ValueError` unless the server is trusted.
    """
    refuse_distrust(request.round, _PURPOSE)
    vectors, products = request.tensors("vectors"), dict[str, Tensor]()
    for group, rows in _samples(node, request, "curvature") if node.clients else ():
        products[f"{group}"] = hessian_products(node.model, node.clients.together.train, rows, vectors[f"{group}"])
        products[f"{group}/records"] = torch.tensor(len(rows))
    return RecordDict({"products": pack(products)})


@exchange("query")
def send_traces(node: Node, request: Request) -> RecordDict:
    """Send samples of the trace of each group's Hessian: their sum, the sum of their squares, and their number, `[K]`.

    The request says how many to take of each sampled record of each group. Raises `ValueError` unless the server is
    trusted.
    """
    refuse_distrust(request.round, _PURPOSE)
    if not node.clients:
        return RecordDict({"traces": pack({})})
    noise_key, step = request.round.key, request.round.step
    assert noise_key is not None
    times = cast(list[int], request.options["times"])
    traces = [repeated_samples(node.model, node.clients.together.train, rows, noise_key, step, times[group]).double()
              for group, rows in _samples(node, request, "trace")]
    sums, squares = (torch.stack([each.pow(power).sum() for each in traces]) for power in (1, 2))
    return RecordDict({"traces": pack({"sums": sums, "squares": squares,
                                       "samples": torch.tensor([*map(len, traces)])})})


def _samples(node: Node, request: Request, purpose: str) -> Iterator[tuple[int, Tensor]]:
    """Yield each group's number and a sample of the rows of its records, at the rates that the request names.

    The model is then at the request's weights. The run must have a key.
    """
    round_, data = request.round, node.training_records(request.weights)
    assert round_.key is not None
    rates = cast(list[float], request.options["rates"])
    yield from samples(data, rates, round_.key, round_.step, purpose)
