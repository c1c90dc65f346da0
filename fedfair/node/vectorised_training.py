"""Local training of many participants at once: one tensor program over stacked weights.

Participants start from the same weights, and each trains its own copy. The copies are stacked, `[m, *shape]`, so that a
step of all participants is one batched product instead of m small ones. The result equals training them one by one, up
to float rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from fedfair.datasets import GroupedDataset
from fedfair.datasets.partition import Shares
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.randomness import generator
from fedfair.models.published import loss
from fedfair.protocol.local_budget import proximal_share
from fedfair.protocol.round import LocalSgd

_NUMBERS, _GPU_NUMBERS = 2**20, 2**28
"""Largest number of stacked weights on a CPU, whose cache is best served by few, and on a GPU, whose cores need many.

More participants than fit are trained in turns.
"""


class Updates(NamedTuple):
    """Updates of the `clients` of one turn: the weights they started from less those they ended with, `[m, *shape]`.

    The sign is a gradient's, so that a server's optimiser can take it for one (Reddi et al. 2021).
    """

    clients: list[int]
    values: Gradients


class _Plan(NamedTuple):
    """One participant's training: the records that each step takes, by row, and their weights, `[steps, batch]`."""

    client: int
    order: Tensor
    weights: Tensor


def local_updates(model: nn.Module, weights: Mapping[str, Tensor], shares: Shares, drawn: Sequence[int],
                  local: LocalSgd, round_: int, device: str = "cpu") -> Iterator[Updates]:
    """Train each participant of `drawn` from `weights` on its own records, and yield their updates, some at a time.

    A participant without records has an update of zero. The order of the records is a pure function of (seed,
    participant, round): methods are compared on the same orders.
    """
    rows = [shares.rows(number) for number in drawn]
    plans = [_plan(number, held.stop - held.start, local, round_)
             for number, held in zip(drawn, rows, strict=True)]
    longest = sorted(range(len(plans)), key=lambda i: -len(plans[i].order))  # turns of similar length waste the least
    numbers = _NUMBERS if torch.device(device).type == "cpu" else _GPU_NUMBERS
    at_once = max(1, numbers // sum(value.numel() for value in weights.values()))
    for start in range(0, len(plans), at_once):
        turn = longest[start : start + at_once]
        turn_plans = [plans[i] for i in turn]
        turn_rows = [rows[i] for i in turn]
        trained = _train(model, weights, turn_plans, shares.together.train, turn_rows, local, device)
        updates = {name: weights[name] - value for name, value in trained.items()}
        yield Updates([drawn[i] for i in turn], updates)


def _plan(client: int, records: int, local: LocalSgd, round_: int) -> _Plan:
    """Plan shuffled batches, `epochs` times over all records.

    The last batch of an epoch may be smaller, and is averaged over its own records: weights of zero fill its row.
    """
    draws = generator(local.seed, "local order", client, round_)
    weights = _weights(records, local.batch_size, local.epochs)
    order = torch.zeros(local.epochs, weights.numel() // local.epochs, dtype=torch.long)
    for epoch in range(local.epochs):
        torch.randperm(records, generator=draws, out=order[epoch, :records])
    return _Plan(client, order.view_as(weights), weights)


@lru_cache(maxsize=1024)
def _weights(records: int, batch: int, epochs: int) -> Tensor:
    """Return the weights of a plan's batches, `[steps, batch]`; every row sums to 1."""
    steps = -(-records // batch)
    weights = (torch.arange(steps * batch) < records).double().view(steps, batch)
    return (weights / weights.sum(1, keepdim=True)).repeat(epochs, 1)


def _train(model: nn.Module, weights: Mapping[str, Tensor], plans: Sequence[_Plan], data: GroupedDataset,
           rows: Sequence[slice], local: LocalSgd, device: str) -> Gradients:
    """Return the weights of every participant after its steps, `[m, *shape]`, in the order of `plans`, longest first.

    `rows` are those of each participant in `data`.
    """
    stacked = {name: value.expand(len(plans), *value.shape).clone() for name, value in weights.items()}
    x = torch.cat([data.x[held] for held in rows]).to(device)
    y = torch.cat([data.y[held] for held in rows]).to(device)
    x = data.pixels.scaled(x) if data.pixels else x
    starts = torch.tensor([0, *(held.stop - held.start for held in rows)]).cumsum(0)
    order = pad_sequence([plan.order + start for plan, start in zip(plans, starts, strict=False)]).to(device)
    shares = pad_sequence([plan.weights for plan in plans]).to(next(iter(weights.values())))
    if len(data.weight):
        by_record = torch.cat([data.weight[held] for held in rows]).to(shares)
        shares = shares * by_record[order]
    active, back = len(plans), proximal_share(local.learning_rate, local.proximal)
    for step in range(len(order)):
        while len(plans[active - 1].order) <= step:
            active -= 1
        now, taken = {name: value[:active] for name, value in stacked.items()}, order[step, :active]
        for name, gradient in _gradients(model, now, x[taken], y[taken], shares[step, :active]).items():
            decayed = gradient.add(now[name], alpha=local.weight_decay) if local.weight_decay else gradient
            now[name].sub_(decayed, alpha=local.learning_rate)
            if back:
                now[name].lerp_(weights[name], back)
    return stacked


def _gradients(model: nn.Module, stacked: Gradients, x: Tensor, y: Tensor, share: Tensor) -> Gradients:
    """Return each participant's gradient of its weighted loss at its own weights, `[m, *shape]`."""

    def weighted_loss(weights: Gradients, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        """Return one participant's loss at its own weights."""
        return (share * loss(functional_call(model, weights, (x,)), y)).sum()

    leaves = {name: value.detach().requires_grad_() for name, value in stacked.items()}
    total = vmap(weighted_loss)(leaves, x, y, share).sum()
    return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
