"""Per-example gradients of R models at once, each at weights of its own on a batch of its own.

The batches lie one after the other in one tensor. A product with weights is one call for each model, as it is alone;
everything else is one call for all of them: small layers cost more to call than to compute. The result equals that of
one model after the other (`fedfair.gradients.probe.per_example`) up to float rounding. To the bit it does not depend on
which models are in the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.gradients.kernels import Tanh, product
from fedfair.gradients.layer_gradients import Gradients, Names, OuterProducts, full_precision, norms
from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.passes import BACKWARDS, UnreadableError, chain_of

_ELEMENTWISE = (Tanh, nn.Tanh, nn.Sigmoid, nn.ReLU)
_ALIGNED = 32  # rows, at a multiple of which batches begin and end: other places would round differently, since torch
# computes numbers of a tensor 32 at a time (float32, AVX-512), and those that are left over one by one


class Batches(NamedTuple):
    """Batches of R models in one tensor.

    Attributes:
        x: Inputs, `[N, ...]`, zeros between two batches.
        y: Targets, `[N]`.
        spans: Rows of each batch.
    """

    x: Tensor
    y: Tensor
    spans: list[slice]

    @staticmethod
    def of(x: Sequence[Tensor], y: Sequence[Tensor]) -> Batches:
        """Put batches one after the other.

        Args:
            x: Inputs of each, `[B_r, ...]`.
            y: Targets of each, `[B_r]`.
        """
        spans, end = list[slice](), 0
        for batch in x:
            spans.append(slice(end, end + len(batch)))
            end += -(-len(batch) // _ALIGNED) * _ALIGNED
        inputs, targets = x[0].new_zeros(end, *x[0].shape[1:]), y[0].new_zeros(end)
        for span, batch, labels in zip(spans, x, y, strict=True):
            inputs[span], targets[span] = batch, labels
        return Batches(inputs, targets, spans)


class StackedProbe:
    """The gradients `g_i` of the examples of all batches.

    Attributes:
        norms: Euclidean norms over all parameters, `[N]`.
        losses: Losses, `[N]`.
        spans: Rows of each batch.
    """

    def __init__(self, layers: list[OuterProducts], losses: Tensor, spans: list[slice], order: Sequence[str]) -> None:
        self.losses, self.spans = losses, spans
        self.norms = norms(layers, losses)
        self._layers, self._order = layers, order

    def weighted_sums(self, coefficients: Tensor) -> list[Gradients]:
        """Return `sum_i coefficients[i] g_i` over each batch: for each parameter's name, `[*shape]`.

        Args:
            coefficients: One factor per example, `[N]`.
        """
        factors = full_precision(coefficients)
        sums = list[Gradients]({} for _ in self.spans)
        for layer in self._layers:
            for own, found in zip(sums, layer.weighted_sums(factors, self.spans), strict=True):
                own |= found
        return [{name: own[name] for name in self._order} for own in sums]


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
    if len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        raise UnreadableError  # a weight of two layers


def stacked(model: nn.Module, loss: Loss, weights: Sequence[Mapping[str, Tensor]], batches: Batches) -> StackedProbe:
    """Probe the gradients of R models, each on its own batch.

    Args:
        model: A model of their shape, which `refuse_unstackable` lets pass; its own weights are not used.
        loss: From outputs `[n, classes]` and targets `[n]` to one loss per example, `[n]`.
        weights: Weights of each model by name.
        batches: The batch of each.

    Examples:
        >>> from fedfair.models.published import loss
        >>> model, zeros = nn.Sequential(nn.Linear(1, 2, bias=False)), {"0.weight": torch.zeros(2, 1)}
        >>> batches = Batches.of([torch.ones(3, 1), torch.ones(1, 1)], [torch.zeros(3).long(), torch.zeros(1).long()])
        >>> probe = stacked(model, loss, [zeros, zeros], batches)
        >>> [sums["0.weight"].flatten() for sums in probe.weighted_sums(torch.ones(32))]
        [tensor([-1.5000,  1.5000]), tensor([-0.5000,  0.5000])]
    """
    _, owned = trained_parameters(model)
    spans = batches.spans
    chain = [layer for layer in chain_of(model) if type(layer) is not nn.Flatten]
    values = [batches.x.flatten(1)]
    with torch.no_grad():
        for layer in chain:
            values.append(_through(owned[layer], weights, values[-1], spans) if layer in owned else layer(values[-1]))
    output = values[-1].detach().requires_grad_()
    losses = loss(output, batches.y)
    (deltas,) = torch.autograd.grad(losses.sum(), output)
    layers = list[OuterProducts]()
    first = next(depth for depth, layer in enumerate(chain) if layer in owned)
    with torch.no_grad():
        for depth in reversed(range(first, len(chain))):
            layer = chain[depth]
            if layer not in owned:
                deltas = BACKWARDS[type(layer)](layer, values[depth], values[depth + 1], deltas)
                continue
            shape = weights[0][owned[layer]["weight"]].shape
            layers.append(OuterProducts(owned[layer], shape, values[depth][:, None], deltas[:, None]))
            deltas = _back(owned[layer], weights, deltas, values[depth], spans) if depth > first else deltas
    return StackedProbe(layers, losses.detach(), spans, list(weights[0]))


def _through(names: Names, weights: Sequence[Mapping[str, Tensor]], rows: Tensor, spans: Sequence[slice]) -> Tensor:
    """Return what each model's linear layer gives for its rows of `[N, p]`, `[N, q]`."""
    outputs = rows.new_zeros(len(rows), len(weights[0][names["weight"]]))
    for own, span in zip(weights, spans, strict=True):
        outputs[span] = product(rows[span], own[names["weight"]], own[names["bias"]] if "bias" in names else None)
    return outputs


def _back(names: Names, weights: Sequence[Mapping[str, Tensor]], deltas: Tensor, like: Tensor, spans: Sequence[slice]
          ) -> Tensor:
    """Return the gradients with respect to what went into each model's linear layer, in the shape of `like`."""
    inputs = torch.zeros_like(like)
    for own, span in zip(weights, spans, strict=True):
        inputs[span] = product(deltas[span], own[names["weight"]].t())
    return inputs
