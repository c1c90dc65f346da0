"""What is known of the per-example gradients of one batch: norms, inner products and weighted sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from fedfair.gradients.layers import Gradients, LayerGradients, full_precision, norms

Loss = Callable[[Tensor, Tensor], Tensor]
"""`loss(output [B, ...], target [B, ...]) -> [B]`: one number per example."""


class Probe(Protocol):
    """The gradients `g_i` of one batch of B examples with respect to the trained parameters.

    `norms` `[B]` are the Euclidean norms of the per-example gradients over all parameters, `losses` `[B]` the losses.
    """

    norms: Tensor
    losses: Tensor

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Return the inner product of each per-example gradient with one direction.

        Args:
            direction: For each trained parameter's name, a tensor of that parameter's shape.

        Returns:
            `<g_i, direction>`: `[B]`.
        """

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """Return the weighted sum of the per-example gradients.

        Args:
            coefficients: One factor per example, `[B]`; those of a clip rule give the clipped sum.

        Returns:
            `sum_i coefficients[i] g_i`: for each trained parameter's name, a tensor of that parameter's shape.
        """


class LayerProbe:
    """A probe that keeps the gradients of each layer."""

    def __init__(self, layers: list[LayerGradients], losses: Tensor, trained: Mapping[str, Tensor]) -> None:
        self.losses = losses
        self.norms = norms(layers, losses)
        self._layers, self._trained = layers, trained

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `Probe`."""
        return sum((layer.dot(direction) for layer in self._layers), torch.zeros_like(self.norms))

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `Probe`."""
        sums: Gradients = {}
        factors = full_precision(coefficients)
        for layer in self._layers:
            sums |= layer.weighted_sum(factors)
        return {name: sums[name] if name in sums else torch.zeros_like(p) for name, p in self._trained.items()}
