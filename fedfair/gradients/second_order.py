"""Per-example gradients that can be differentiated again: what a penalty on gradients needs.

The same sums as in `fedfair.gradients.layers`, over tensors that are still part of autograd's graph. So `<g_i, v>` and
`|g_i|^2` are functions of the parameters, and their gradients, Hessian-vector products, take one more backward pass;
neither the Hessian nor a tensor of size batch x parameters is ever formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedfair.gradients.layers import LAYERS, LayerGradients, Names
from fedfair.gradients.probe import Loss, trained_parameters


class DifferentiableProbe(NamedTuple):
    """The model's `output` on a batch of B examples, and the gradients of their losses, by layer."""

    output: Tensor
    layers: list[LayerGradients]

    def square_norms(self) -> Tensor:
        """`|g_i|^2`: `[B]`."""
        return torch.stack([layer.square_norms() for layer in self.layers]).sum(0)

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """`<g_i, direction>` for a constant tensor of each trained parameter's shape: `[B]`."""
        return torch.stack([layer.dot(direction) for layer in self.layers]).sum(0)


class Call(NamedTuple):
    """A layer, the model's names of its trained parameters, what went in and what came out, as parts of the graph."""

    layer: nn.Module
    names: Names
    inputs: Tensor
    output: Tensor


def differentiable(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> DifferentiableProbe:
    """Probe the gradients of `loss(model(x), y)` for B > 0 examples, as functions of the trained parameters.

    Raises `ValueError` for a model with layers that are not in `fedfair.gradients.layers.LAYERS`, or that uses one, or
    one's parameter, twice.
    """
    output, calls = recorded(model, x)
    deltas = torch.autograd.grad(loss(output, y).sum(), [call.output for call in calls], create_graph=True)
    parts = [part for call, delta in zip(calls, deltas, strict=True)
             for part in LAYERS[type(call.layer)](call.layer, call.names, call.inputs, delta)]
    return DifferentiableProbe(output, parts)


def recorded(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Call]]:
    """The model's output on a batch, and the calls of its layers with trained parameters.

    Raises `ValueError` for a model with layers that are not in `fedfair.gradients.layers.LAYERS`, or that uses one, or
    one's parameter, twice.
    """
    _, owned = trained_parameters(model)
    calls: list[Call] = []

    def record(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Any:
        """Keep a call."""
        calls.append(Call(layer, owned[layer], (*args, *kwargs.values())[0], output))

    hooks = [layer.register_forward_hook(record, with_kwargs=True) for layer in owned]
    try:
        output = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    used = [name for call in calls for name in call.names.values()]
    if not all(type(layer) in LAYERS for layer in owned) or len(calls) != len(owned) or len(used) > len(set(used)):
        known = ", ".join(sorted(layer.__name__ for layer in LAYERS))
        raise ValueError(f"{type(model).__name__} has layers whose gradients cannot be differentiated here, or uses "
                         f"one twice: take a model of {known}, each used once")
    return output, calls
