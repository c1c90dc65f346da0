"""Per-example gradients that can be differentiated again, as a penalty on gradients needs them.

The same sums as in `fedfair.gradients.layers`, over tensors that are still part of autograd's graph. So `<g_i, v>` and
`|g_i|^2` are functions of the parameters. Their gradients, Hessian-vector products, take one more backward pass;
neither the Hessian nor a tensor of size batch x parameters is ever formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.layers import LAYERS, LayerGradients
from fedfair.gradients.passes import ForwardCall, recorder


class DifferentiableProbe(NamedTuple):
    """The model's `output` on a batch of B examples, and the gradients of their losses, by layer."""

    output: Tensor
    layers: list[LayerGradients]

    def square_norms(self) -> Tensor:
        """Return `|g_i|^2`: `[B]`."""
        return torch.stack([layer.squares().values for layer in self.layers]).sum(0)

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Return `<g_i, direction>` for a constant tensor of each trained parameter's shape: `[B]`."""
        return torch.stack([layer.dot(direction) for layer in self.layers]).sum(0)


def differentiable(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> DifferentiableProbe:
    """Probe the gradients of `loss(model(x), y)` for B > 0 examples, as functions of the trained parameters.

    Raises `ValueError` if the model has a layer that is not in `fedfair.gradients.layers.LAYERS`, or uses a layer or a
    parameter twice.
    """
    output, calls = recorded(model, x)
    _, owned = trained_parameters(model)
    deltas = torch.autograd.grad(loss(output, y).sum(), [call.output for call in calls], create_graph=True)
    parts = [part for call, delta in zip(calls, deltas, strict=True)
             for part in LAYERS[type(call.layer)](call.layer, owned[call.layer], call.inputs, delta)]
    return DifferentiableProbe(output, parts)


def recorded(model: nn.Module, x: Tensor) -> tuple[Tensor, list[ForwardCall]]:
    """Return the model's output on a batch, and the calls of its layers with trained parameters.

    Raises `ValueError` if the model has a layer that is not in `fedfair.gradients.layers.LAYERS`, or uses a layer or a
    parameter twice.
    """
    _, owned = trained_parameters(model)
    calls: list[ForwardCall] = []
    with recorder(owned, calls.append):
        output = model(x)
    used = [name for call in calls for name in owned[call.layer].values()]
    if not all(type(layer) in LAYERS for layer in owned) or len(calls) != len(owned) or len(used) > len(set(used)):
        known = ", ".join(sorted(layer.__name__ for layer in LAYERS))
        raise ValueError(f"{type(model).__name__} has layers whose gradients cannot be differentiated here, or uses "
                         f"one twice: take a model of {known}, each used once")
    return output, calls
