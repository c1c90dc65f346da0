"""The groups' losses over the records of a node, and their first and second derivatives: the ingredients of risk terms.

Vectors are flat, `[P]`: the trained parameters in the model's order. A Hessian is never materialised; two backward
passes multiply it by a vector (Pearlmutter 1994). Nothing in this module is private: the results go to a server that is
trusted with exact sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.gradients.kernels.onednn import FastLinear
from fedfair.gradients.layers import Gradients, flat
from fedfair.gradients.parameters import trained_parameters
from fedfair.mechanisms.randomness import key
from fedfair.mechanisms.sampling import poisson
from fedfair.models.published import loss
from fedfair.node.node import Node
from fedfair.protocol.round import Round


def clipping_effect(node: Node, weights: Mapping[str, Tensor], round_: Round) -> Gradients:
    """Return the sums over the round's batch with and without clipping, before any noise; they are not private.

    `plain` and `clipped` are gradient sums, `[P]`. `sizes` are the numbers of each group's records in the batch, `[K]`,
    and `excess` the groups' sums of `|g_i - c_i g_i|`, `[K]`. Raises `ValueError` if the round has no clip rule.
    """
    if round_.rule is None:
        raise ValueError("what clipping does to a batch needs a clip rule, which the round does not have")
    probe, groups = node.batch(weights, round_)[:2]
    coefficients, groups = round_.rule.coefficients(probe.norms, groups), groups.cpu()
    sizes, excess = torch.zeros(2, len(round_.rates), dtype=torch.float64)
    sizes.index_add_(0, groups, torch.ones(len(groups), dtype=torch.float64))
    excess.index_add_(0, groups, (probe.norms * (1 - coefficients)).abs().double().cpu())
    plain, clipped = (flat(probe.weighted_sum(c)) for c in (torch.ones_like(coefficients), coefficients))
    return {"plain": plain, "clipped": clipped, "sizes": sizes, "excess": excess}


def losses_and_gradients(model: nn.Module, data: GroupedDataset) -> tuple[Tensor, Tensor]:
    """Return the summed loss of each group's records, `[K]` in double precision, and its gradient, `[K, P]`.

    Equal records pass through the model once, and count as often as they occur.
    """
    distinct, times = data.distinct
    parameters = list(trained_parameters(model)[0].values())
    losses = torch.zeros(len(data.names), dtype=torch.float64)
    gradients = torch.zeros(len(data.names), sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    for group, row in enumerate(gradients):
        for portion in data.portions((data.group[distinct] == group).nonzero().flatten()):
            with FastLinear():
                by_record = _losses(model, data, distinct[portion])
            total = by_record @ times[portion].to(by_record)
            losses[group] += total.item()
            gradient = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
            row += torch.cat([part.flatten() for part in gradient]).cpu()
    return losses, gradients


def hessian_products(model: nn.Module, data: GroupedDataset, rows: Tensor, vectors: Tensor) -> Tensor:
    """Multiply the Hessian of the summed loss of some rows by each vector: `[n, P]` from vectors `[n, P]`."""
    parameters = list(trained_parameters(model)[0].values())
    products = torch.zeros_like(vectors)
    for part in data.portions(rows):
        gradient = torch.autograd.grad(_losses(model, data, part).sum(), parameters, create_graph=True,
                                       allow_unused=True, materialize_grads=True)
        joined = torch.cat([piece.flatten() for piece in gradient])
        for product, vector in zip(products, vectors.to(joined.device), strict=True):
            second = torch.autograd.grad(joined @ vector, parameters, retain_graph=True, materialize_grads=True)
            product += torch.cat([piece.flatten() for piece in second]).to(product.device)
    return products


def samples(data: GroupedDataset, rates: Sequence[float], noise_key: str, number: int, purpose: str
            ) -> Iterator[tuple[int, Tensor]]:
    """Yield each group and the rows of a Poisson sample of it; which client holds a record makes no difference."""
    drawn = poisson(key(noise_key, purpose), number, data.records, _by_record(data, rates))
    for group in range(len(data.names)):
        yield group, drawn[data.group[drawn] == group]


def _by_record(data: GroupedDataset, rates: Sequence[float]) -> Tensor:
    """Return the sampling rate of each record, `[N]`, from those of the groups."""
    return torch.tensor(rates, dtype=torch.float64)[data.group]


def _losses(model: nn.Module, data: GroupedDataset, rows: Tensor) -> Tensor:
    """Return the losses of some rows, `[m]`, on the model's device."""
    device = next(model.parameters()).device
    return loss(model(data.features(rows, device)), data.y[rows].to(device))
