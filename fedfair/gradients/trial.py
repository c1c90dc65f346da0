"""Batches made up for trying a model out: shaped like the records, without a look at their values.

Random numbers that a model draws meanwhile from the global generators are independent of other examples and of the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedfair.gradients.layer_probe import Loss


def seeds(count: int) -> list[int]:
    """Draw one seed for each of `count` examples from PyTorch's global generator."""
    return torch.randint(2**32, (count,)).tolist()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python while the context lasts; leave them as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class Trial(NamedTuple):
    """A model with its loss, and the shape of one record: `x` `[1, ...]` and `y` `[1, ...]`, of zeros."""

    model: nn.Module
    loss: Loss
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Trial:
        """Describe a batch by its shape, dtype and device alone."""
        return cls(model, loss, x.new_zeros(1, *x.shape[1:]), y.new_zeros(1, *y.shape[1:]))

    def inputs(self, size: int, scale: float = 1.0) -> Tensor:
        """Draw inputs `[size, ...]`: normal with deviation `scale`, or words of the smallest vocabulary."""
        shape = (size, *self.x.shape[1:])
        if self.x.is_floating_point():
            return torch.randn(shape, device=self.x.device, dtype=self.x.dtype) * scale
        words = [layer.num_embeddings for layer in self.model.modules() if isinstance(layer, nn.Embedding)]
        return torch.randint(min(words, default=2), shape, device=self.x.device).to(self.x.dtype)

    def targets(self, output: Tensor) -> Tensor:
        """Draw targets for outputs `[B, ...]`: numbers from 0 to 1, or classes."""
        shape = (len(output), *self.y.shape[1:])
        if self.y.is_floating_point():
            return torch.rand(shape, device=self.y.device, dtype=self.y.dtype)
        classes = output.shape[1] if output.dim() > 1 else 2
        return torch.randint(max(classes, 1), shape, device=self.y.device).to(self.y.dtype)


@contextmanager
def at_random_weights(model: nn.Module) -> Iterator[None]:
    """Give a model random parameters while the context lasts: branches that start at zero are open.

    A parameter `[n, ...]` has the deviation that keeps a layer's outputs as large as its inputs.
    """
    kept = [(parameter, parameter.data) for parameter in model.parameters()]
    for parameter, value in kept:
        width = max(1, value.numel() // len(value)) if value.dim() and len(value) else 1
        parameter.data = torch.randn_like(value) / width**0.5
    try:
        yield
    finally:
        for parameter, value in kept:
            parameter.data = value


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch off random layers such as Dropout, so that two passes can be compared."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
