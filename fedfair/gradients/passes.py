"""One forward and one backward pass over a batch: what goes into each layer, and what comes back.

`by_autograd` reads any model through hooks. `by_hand` computes a chain of linear layers, convolutions and activations,
whose first layer may be another. It needs no graph; autograd's bookkeeping takes a third of a small network's time.
Forward hooks record what goes into a model's layers and what comes out, for gradients of either order.

Gradients by `differentiable` can be differentiated again, as a penalty on gradients needs them: they are the same sums
as in `fedfair.gradients.layers`, over tensors that are still part of autograd's graph. So `<g_i, v>` and `|g_i|^2` are
functions of the parameters. Their gradients, Hessian-vector products, take one more backward pass; neither the Hessian
nor a tensor of size batch x parameters is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.grad import conv2d_input

from fedfair.gradients.kernels import Tanh, product
from fedfair.gradients.layer_gradients import LayerGradients
from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.layers import LAYERS


class ForwardCall(NamedTuple):
    """One call of a layer: what went in and what came out, as parts of autograd's graph."""

    layer: nn.Module
    inputs: Tensor
    output: Tensor


@contextmanager
def recorder(layers: Iterable[nn.Module], keep: Callable[[ForwardCall], Tensor | None]) -> Iterator[None]:
    """Pass every call of the layers to `keep` while the context lasts; what `keep` returns replaces the output."""

    def hook(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Any:
        """Pass one call on."""
        return keep(ForwardCall(layer, (*args, *kwargs.values())[0], output))

    hooks = [layer.register_forward_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for registered in hooks:
            registered.remove()


Losses = Callable[[Tensor], Tensor]
"""From a model's output for B examples to their losses `[B]`."""


class BackwardCall(NamedTuple):
    """One call of a layer: what went in, and the gradient of the summed losses with respect to what came out."""

    layer: nn.Module
    inputs: Tensor
    output_gradients: Tensor


Pass = Callable[[nn.Module, Tensor, Losses, Collection[nn.Module]], tuple[Tensor, list[BackwardCall]]]
"""From a model, a batch `x`, its losses as a function and the layers to read, to losses `[B]` and calls."""


class UnreadableError(Exception):
    """A model cannot be read in this way."""


def by_hand(model: nn.Module, x: Tensor, losses: Losses, layers: Collection[nn.Module]
            ) -> tuple[Tensor, list[BackwardCall]]:
    """Return the losses of a chain on `x`, and the calls of those of its layers that are in `layers`, last one first.

    Raises `UnreadableError` for anything but nested `Sequential`s, without hooks, of the layers in `BACKWARDS`. The
    first may be any of `fedfair.gradients.layers.LAYERS`: the gradient with respect to its inputs is not needed.
    """
    chain, values = _readable(chain_of(model)), [x]
    with torch.no_grad():
        for layer in chain:
            values.append(product(values[-1], layer.weight, layer.bias) if type(layer) is nn.Linear
                          else layer(values[-1]))
    output = values[-1].detach().requires_grad_()
    batch_losses = losses(output)
    (deltas,) = torch.autograd.grad(batch_losses.sum(), output)
    calls: list[BackwardCall] = []
    first = next((depth for depth, layer in enumerate(chain) if layer in layers), len(chain))
    for depth in reversed(range(first, len(chain))):
        layer, inputs, outputs = chain[depth], values[depth], values[depth + 1]
        if layer in layers:
            calls.append(BackwardCall(layer, inputs, deltas))
        if depth > first:
            with torch.no_grad():
                deltas = BACKWARDS[type(layer)](layer, inputs, outputs, deltas)
    return batch_losses.detach(), calls


def by_autograd(model: nn.Module, x: Tensor, losses: Losses, layers: Collection[nn.Module]
                ) -> tuple[Tensor, list[BackwardCall]]:
    """Return the losses of any model on `x`, and the calls of its modules that are in `layers`, in their order.

    A call is left out if the losses do not depend on its output.
    """
    inputs: list[tuple[nn.Module, Tensor]] = []
    edges: list[GradientEdge] = []
    anchor = torch.zeros((), device=x.device, requires_grad=True)

    def keep(call: ForwardCall) -> Tensor:
        """Make the output of a call part of the graph, and keep its place there: a later layer may overwrite it."""
        output: Tensor = (call.output if call.output.requires_grad
                          else _Anchored.apply(call.output, anchor))  # type: ignore[no-untyped-call]
        inputs.append((call.layer, call.inputs.detach()))
        edges.append(get_gradient_edge(output))
        return output

    with recorder(layers, keep), _frozen(model.parameters()):
        batch_losses = losses(model(x))
    deltas = torch.autograd.grad(batch_losses.sum(), edges, allow_unused=True)
    return batch_losses.detach(), [BackwardCall(layer, values, delta) for (layer, values), delta in zip(
        inputs, deltas, strict=True) if delta is not None]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

BACKWARDS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Tensor], Tensor]] = {
    nn.Linear: lambda layer, inputs, outputs, deltas: product(deltas, layer.weight.t()),
    nn.Conv2d: lambda layer, inputs, outputs, deltas: conv2d_input(  # type: ignore[no-untyped-call]
        inputs.shape, layer.weight, deltas, layer.stride, layer.padding, layer.dilation, layer.groups),
    nn.Flatten: lambda layer, inputs, outputs, deltas: deltas.reshape(inputs.shape),
    **dict.fromkeys((nn.Tanh, Tanh), lambda layer, inputs, outputs, deltas: torch.ops.aten.tanh_backward(
        deltas, outputs)),
    nn.Sigmoid: lambda layer, inputs, outputs, deltas: torch.ops.aten.sigmoid_backward(deltas, outputs),
    nn.ReLU: lambda layer, inputs, outputs, deltas: torch.ops.aten.threshold_backward(deltas, outputs, 0),
}
"""From the gradient with respect to a layer's outputs to that with respect to its inputs, by exact type."""


def chain_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of nested `Sequential`s in call order; raises `UnreadableError` for a layer with hooks."""
    attributes = vars(model)
    if "forward" in attributes or any(attributes[hooks] for hooks in _HOOKS):
        raise UnreadableError
    return [layer for part in model for layer in chain_of(part)] if type(model) is nn.Sequential else [model]


def _readable(chain: list[nn.Module]) -> list[nn.Module]:
    """Return the same layers; raises `UnreadableError` for an unknown one."""
    if not all(_has_backward(layer) or (depth == 0 and type(layer) in LAYERS) for depth, layer in enumerate(chain)):
        raise UnreadableError
    return chain


def _has_backward(layer: nn.Module) -> bool:
    """Say whether `BACKWARDS` covers a layer: no convolution that pads with anything but a number of zeros."""
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    return type(layer) in BACKWARDS


class _Anchored(torch.autograd.Function):
    """The identity, which makes its output part of the graph even if its input is not.

    Marking the output dirty keeps it a plain tensor that later layers may overwrite in place.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        """Pass `output` on."""
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Pass the gradient on; never called, since the graph ends at `output`."""
        return gradient, None


@contextmanager
def _frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Keep autograd from computing the parameters' gradients: they follow from the calls."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


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
