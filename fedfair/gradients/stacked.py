"""Per-example gradients of R models at once: one tensor program over stacked weights.

The models are of one shape, and each has weights and a batch of its own. Batches of different sizes are filled up with
rows that a coefficient of 0 leaves out. The result equals that of one model after the other
(`fedfair.gradients.probe.per_example`), up to float rounding: small layers cost more to call than to compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.gradients.kernels import Tanh, products, sums_of_outer_products
from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.layers import Gradients, Names, OuterProducts, full_precision, norms
from fedfair.gradients.passes import BACKWARDS, UnreadableError, chain_of

_ELEMENTWISE = (Tanh, nn.Tanh, nn.Sigmoid, nn.ReLU)


class _Call(NamedTuple):
    """A linear layer's call: its names of parameters, inputs `[R, B, p]` and output gradients `[R, B, q]`."""

    names: Names
    inputs: Tensor
    deltas: Tensor


class StackedProbe:
    """The gradients `g_ri` of a batch of B examples for each of R models.

    Attributes:
        norms: Euclidean norms over all parameters, `[R, B]`.
        losses: Losses, `[R, B]`.
    """

    def __init__(self, calls: list[_Call], losses: Tensor, weights: Mapping[str, Tensor]) -> None:
        self.losses = losses
        layers = [OuterProducts(call.names, weights[call.names["weight"]].shape[1:], _apart(call.inputs),
                                _apart(call.deltas)) for call in calls]
        self.norms = norms(layers, losses.flatten()).view_as(losses)
        self._calls, self._order = calls, list(weights)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """Return `sum_i coefficients[r, i] g_ri`: for each parameter's name, `[R, *shape]`.

        Args:
            coefficients: One factor per example, `[R, B]`.
        """
        sums: Gradients = {}
        factors = full_precision(coefficients)[:, :, None]
        calls = self._calls if bool(self.norms.isfinite().all()) else self._without(factors == 0)
        for names, inputs, deltas in calls:
            scaled = full_precision(factors * deltas)
            sums[names["weight"]] = sums_of_outer_products(scaled, inputs)
            if "bias" in names:
                sums[names["bias"]] = scaled.sum(1)
        return {name: sums[name] for name in self._order}

    def _without(self, left_out: Tensor) -> list[_Call]:
        """Return the calls with zeros in the rows that are left out, `[R, B, 1]`: 0 times infinity is no number."""
        return [_Call(names, inputs.masked_fill(left_out, 0), deltas.masked_fill(left_out, 0))
                for names, inputs, deltas in self._calls]


def refuse_unstackable(model: nn.Module) -> None:
    """Raise `UnreadableError` unless a model is a chain of trained linear layers and elementwise activations.

    Args:
        model: The model; it may begin by making each example one row (`nn.Flatten`).
    """
    chain = chain_of(model)
    rest = chain[1:] if type(chain[0]) is nn.Flatten and (chain[0].start_dim, chain[0].end_dim) == (1, -1) else chain
    for layer in rest:
        trained = all(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        if not (type(layer) in _ELEMENTWISE or (type(layer) is nn.Linear and trained)):
            raise UnreadableError
    if len(dict(model.named_parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        raise UnreadableError  # a weight of two layers


def stacked(model: nn.Module, loss: Loss, weights: Mapping[str, Tensor], x: Tensor, y: Tensor) -> StackedProbe:
    """Probe the gradients of R models, each on its own batch.

    Args:
        model: A model of their shape, which `refuse_unstackable` lets pass; its own weights are not used.
        loss: From outputs `[n, classes]` and targets `[n]` to one loss per example, `[n]`.
        weights: Weights of the models by name, `[R, *shape]`.
        x: Inputs, `[R, B, ...]`; B is at least 1.
        y: Targets, `[R, B]`.

    Examples:
        >>> from fedfair.models.published import loss
        >>> model = nn.Sequential(nn.Linear(1, 2, bias=False))
        >>> probe = stacked(model, loss, {"0.weight": torch.zeros(2, 2, 1)}, torch.ones(2, 3, 1),
        ...                 torch.zeros(2, 3, dtype=torch.long))
        >>> probe.norms.shape, probe.weighted_sum(torch.tensor([[1.0, 0, 0], [1.0, 1.0, 0]]))["0.weight"].flatten()
        (torch.Size([2, 3]), tensor([-0.5000,  0.5000, -1.0000,  1.0000]))
    """
    _, owned = trained_parameters(model)
    chain = [layer for layer in chain_of(model) if type(layer) is not nn.Flatten]
    values = [x.flatten(2)]
    with torch.no_grad():
        for layer in chain:
            values.append(_through(values[-1], weights, owned[layer]) if layer in owned else layer(values[-1]))
    output = values[-1].flatten(0, 1).detach().requires_grad_()
    losses = loss(output, y.flatten())
    (slopes,) = torch.autograd.grad(losses.sum(), output)
    deltas, calls = slopes.view_as(values[-1]), list[_Call]()
    first = next(depth for depth, layer in enumerate(chain) if layer in owned)
    with torch.no_grad():
        for depth in reversed(range(first, len(chain))):
            layer = chain[depth]
            if layer in owned:
                calls.append(_Call(owned[layer], values[depth], deltas))
                deltas = products(deltas, weights[owned[layer]["weight"]].transpose(1, 2)) if depth > first else deltas
            else:
                deltas = BACKWARDS[type(layer)](layer, values[depth], values[depth + 1], deltas)
    return StackedProbe(calls, losses.detach().view_as(y), weights)


def _through(values: Tensor, weights: Mapping[str, Tensor], names: Names) -> Tensor:
    """Return what linear layers give for `[R, B, p]`, `[R, B, q]`."""
    return products(values, weights[names["weight"]], weights[names["bias"]] if "bias" in names else None)


def _apart(values: Tensor) -> Tensor:
    """Return the rows of all models, `[R, B, p]`, as examples of one position, `[R B, 1, p]`."""
    return values.flatten(0, 1)[:, None]
