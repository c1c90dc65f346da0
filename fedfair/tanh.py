"""tanh by way of the sigmoid, which PyTorch computes about three times as fast on a processor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_MINUS_ONE = torch.tensor(-1.0)


class Tanh(nn.Module):
    """`tanh x = 2 / (1 + exp(-2x)) - 1`, for a tensor of any shape, within two units of rounding of 1.

    `torch.tanh` is exact to the last bit, also near 0, but took a fifth of a private step of a convolutional network.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`[...]` to `[...]`; other devices than processors have a fast tanh of their own."""
        return torch.add(_MINUS_ONE, torch.sigmoid(x + x), alpha=2) if x.device.type == "cpu" else torch.tanh(x)
