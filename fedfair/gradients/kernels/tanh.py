"""tanh computed from the sigmoid, which PyTorch computes about three times as fast on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_MINUS_ONE = torch.tensor(-1.0)


class Tanh(nn.Module):
    """`tanh x = 2 / (1 + exp(-2x)) - 1`, for a tensor of any shape, within two units of rounding of 1.

    `torch.tanh` is exact to the last bit, also near 0, but takes a fifth of a private step of a convolutional network.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map `[...]` to `[...]`; devices other than CPUs use their own tanh, which is fast."""
        if x.device.type != "cpu":
            return torch.tanh(x)
        values: Tensor = _BySigmoid.apply(x)  # type: ignore[no-untyped-call]
        return values


class _BySigmoid(torch.autograd.Function):
    """The sum, sigmoid and product as one operation with the derivative of tanh: a third of their passes."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Map `[...]` to `[...]`."""
        values = (x + x).sigmoid_()
        return torch.add(_MINUS_ONE, values, alpha=2, out=values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Save the output: the derivatives are functions of it."""
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return `(1 - tanh^2 x)` times the gradient; can be differentiated again."""
        slopes: Tensor = torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)
        return slopes

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> tuple[Tensor, int | None]:
        """Apply to a batch as to any tensor: the function is elementwise."""
        return _BySigmoid.apply(x), in_dims[0]  # type: ignore[no-untyped-call]

    jvp = backward  # the Jacobian is diagonal, so forward mode multiplies by the same numbers
