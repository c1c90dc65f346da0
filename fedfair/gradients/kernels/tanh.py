"""tanh by way of the sigmoid, which PyTorch computes about three times as fast on a processor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_MINUS_ONE = torch.tensor(-1.0)


class Tanh(nn.Module):
    """`tanh x = 2 / (1 + exp(-2x)) - 1`, for a tensor of any shape, within two units of rounding of 1.

    `torch.tanh` is exact to the last bit, also near 0, but took a fifth of a private step of a convolutional network.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`[...]` to `[...]`; other devices than processors have a fast tanh of their own."""
        if x.device.type != "cpu":
            return torch.tanh(x)
        found: Tensor = _BySigmoid.apply(x)  # type: ignore[no-untyped-call]
        return found


class _BySigmoid(torch.autograd.Function):
    """The sum, sigmoid and product as one operation, whose derivative is tanh's own: a third of their passes."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """`[...]` to `[...]`."""
        found = (x + x).sigmoid_()
        return torch.add(_MINUS_ONE, found, alpha=2, out=found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep what the derivatives are functions of."""
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """`(1 - tanh^2 x)` times the gradient; can be differentiated again."""
        found: Tensor = torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> tuple[Tensor, int | None]:
        """Number by number, the batch is a tensor like any other."""
        return _BySigmoid.apply(x), in_dims[0]  # type: ignore[no-untyped-call]

    jvp = backward  # the Jacobian is diagonal, so forward mode multiplies by the same numbers
