"""One forward and one backward pass over a batch: what goes into each layer, and what comes back.

`by_autograd` hooks into any model. `by_hand` goes through a chain of linear layers, convolutions and activations, whose
first layer may be another; it needs no graph, and autograd's bookkeeping takes a third of a small network's time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.grad import conv2d_input

from fedfair.gradients.kernels.onednn import product
from fedfair.gradients.kernels.tanh import Tanh
from fedfair.gradients.layers import LAYERS

Losses = Callable[[Tensor], Tensor]
"""From a model's output for B examples to their losses `[B]`."""


class Call(NamedTuple):
    """One call of a layer: what went in, and the gradient of the summed losses with respect to what came out."""

    layer: nn.Module
    inputs: Tensor
    output_gradients: Tensor


Pass = Callable[[nn.Module, Tensor, Losses, Collection[nn.Module]], tuple[Tensor, list[Call]]]
"""From a model, a batch `x`, what its losses are and the layers that are asked about, to losses `[B]` and calls."""


class UnreadableError(Exception):
    """A model cannot be gone through in this way."""


def by_hand(model: nn.Module, x: Tensor, losses: Losses, layers: Collection[nn.Module]) -> tuple[Tensor, list[Call]]:
    """The losses of a chain on `x`, and the calls of those of its layers that are in `layers`, the last one first.

    Raises `UnreadableError` for anything but nested `Sequential`s, without hooks, of the layers in `_BACKWARDS`; the
    first may be any of `fedfair.gradients.layers.LAYERS`, since nobody asks for the gradient of what goes into it.
    """
    chain, values = _readable(_chain(model)), [x]
    with torch.no_grad():
        for layer in chain:
            values.append(product(values[-1], layer.weight, layer.bias) if type(layer) is nn.Linear
                          else layer(values[-1]))
    output = values[-1].detach().requires_grad_()
    found = losses(output)
    (deltas,) = torch.autograd.grad(found.sum(), output)
    calls: list[Call] = []
    first = next((place for place, layer in enumerate(chain) if layer in layers), len(chain))
    for place in reversed(range(first, len(chain))):
        layer, inputs, outputs = chain[place], values[place], values[place + 1]
        if layer in layers:
            calls.append(Call(layer, inputs, deltas))
        if place > first:
            with torch.no_grad():
                deltas = _BACKWARDS[type(layer)](layer, inputs, outputs, deltas)
    return found.detach(), calls


def by_autograd(model: nn.Module, x: Tensor, losses: Losses, layers: Collection[nn.Module]
                ) -> tuple[Tensor, list[Call]]:
    """The losses of any model on `x`, and the calls of its modules that are in `layers`, in their order.

    A call whose output the losses do not depend on is left out.
    """
    recorded: list[tuple[nn.Module, Tensor, GradientEdge]] = []
    anchor = torch.zeros((), device=x.device, requires_grad=True)

    def record(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Any:
        """Keep a call, whose output becomes part of the graph."""
        found = output if output.requires_grad else _Anchored.apply(output, anchor)  # type: ignore[no-untyped-call]
        recorded.append((layer, (*args, *kwargs.values())[0].detach(), get_gradient_edge(found)))
        return found

    hooks = [layer.register_forward_hook(record, with_kwargs=True) for layer in layers]
    try:
        with _frozen(model.parameters()):
            found = losses(model(x))
    finally:
        for hook in hooks:
            hook.remove()
    deltas = torch.autograd.grad(found.sum(), [edge for _, _, edge in recorded], allow_unused=True)
    return found.detach(), [Call(layer, inputs, delta) for (layer, inputs, _), delta in zip(
        recorded, deltas, strict=True) if delta is not None]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_BACKWARDS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Tensor], Tensor]] = {
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


def _chain(model: nn.Module) -> list[nn.Module]:
    """The layers of nested `Sequential`s in the order of their calls; raises `UnreadableError` for one with hooks."""
    own = vars(model)
    if "forward" in own or any(own[hooks] for hooks in _HOOKS):
        raise UnreadableError
    return [layer for part in model for layer in _chain(part)] if type(model) is nn.Sequential else [model]


def _readable(chain: list[nn.Module]) -> list[nn.Module]:
    """The same layers; raises `UnreadableError` if one is not known."""
    if not all(_has_backward(layer) or (place == 0 and type(layer) in LAYERS) for place, layer in enumerate(chain)):
        raise UnreadableError
    return chain


def _has_backward(layer: nn.Module) -> bool:
    """Whether `_BACKWARDS` has that of a layer: not of a convolution that pads with anything but a number of zeros."""
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    return type(layer) in _BACKWARDS


class _Anchored(torch.autograd.Function):
    """The identity, whose output is part of the graph although nothing that it was computed from is.

    Marking the output dirty keeps it a plain tensor that later layers may overwrite in place.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        """Pass `output` on."""
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Pass the gradient on: never asked for where `output` is the end of the graph."""
        return gradient, None


@contextmanager
def _frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Keep autograd from computing the parameters' gradients, which the calls make superfluous."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
