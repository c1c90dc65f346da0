"""What is known of the per-example gradients of one batch: norms, inner products and weighted sums.

A probe of unweighted losses tells the gradients of weighted ones too: `w_i g_i`. Here is also which parameters a probe
is of, by name and by layer, and which rows of embeddings are never trained: those of words that only fill texts up, at
`padding_idx`. PyTorch gives such a row no gradient, whatever the records hold, so a sum of gradients holds nothing
there but noise. Which rows these are follows from the model alone. They are set to zero in a sum that has its noise
already, so that what leaves is the same number for all records, also where a model's own `forward` uses the row in
another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from fedfair.gradients.layer_gradients import Gradients, LayerGradients, full_precision, norms

Loss = Callable[[Tensor, Tensor], Tensor]
"""`loss(output [B, ...], target [B, ...]) -> [B]`: one number per example."""


class Probe(Protocol):
    """The gradients `g_i` of one batch of B examples with respect to the trained parameters.

    `norms` `[B]` are the Euclidean norms of the per-example gradients over all parameters, `losses` `[B]` the losses.

    Examples:
        >>> from fedfair.gradients.probe import per_example
        >>> model = nn.Linear(1, 1, bias=False)
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> probe: Probe = per_example(model, lambda output, y: output[:, 0] * y, x, torch.ones(3))
        >>> probe.norms
        tensor([1., 2., 4.])
        >>> probe.dot({"weight": torch.tensor([[-1.0]])})
        tensor([-1., -2., -4.])
        >>> probe.weighted_sum(torch.tensor([1.0, 0.5, 0.25]))
        {'weight': tensor([[3.]])}
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


class WeightedProbe:
    """The gradients `w_i g_i` of a batch: what a clip rule then bounds is what a record adds, weight included.

    Args:
        probe: Probe of the `g_i`.
        weights: Weight of each example, `[B]`, from 0.
    """

    def __init__(self, probe: Probe, weights: Tensor) -> None:
        self._probe, self._weights = probe, weights.to(probe.norms)
        self.norms, self.losses = self._weights * probe.norms, self._weights.to(probe.losses) * probe.losses

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `fedfair.gradients.layer_probe.Probe`."""
        return self._weights * self._probe.dot(direction)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `fedfair.gradients.layer_probe.Probe`."""
        return self._probe.weighted_sum(coefficients * self._weights)


def trained_parameters(model: nn.Module) -> tuple[dict[str, nn.Parameter], dict[nn.Module, dict[str, str]]]:
    """Return the parameters that require a gradient by name, each once, and the layers that own them.

    For each layer, the model's names of its parameters by the layer's names ("weight": "2.weight"). A tied parameter
    keeps its first name. Raises `ValueError` if no parameter requires a gradient.
    """
    trained: dict[str, nn.Parameter] = {}
    owned: dict[nn.Module, dict[str, str]] = {}
    first_names: dict[int, str] = {}
    for prefix, layer in model.named_modules():
        for attribute, parameter in layer._parameters.items():
            if parameter is not None and parameter.requires_grad:
                name = first_names.setdefault(id(parameter), f"{prefix}.{attribute}" if prefix else attribute)
                trained[name] = parameter
                owned.setdefault(layer, {})[attribute] = name
    if not trained:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
    return trained, owned


def padding_rows(model: nn.Module) -> dict[str, int]:
    """Return the row that is not trained of each parameter that has one, by the parameter's name.

    A weight that an embedding shares with another layer, for example the last one, is trained as a whole.

    Args:
        model: A model with a parameter that requires a gradient.

    Examples:
        >>> padding_rows(nn.Sequential(nn.Embedding(10, 2, padding_idx=3), nn.Linear(2, 2)))
        {'0.weight': 3}
    """
    _, owned = trained_parameters(model)
    found: dict[str, set[int | None]] = {}
    for layer, names in owned.items():
        row = layer.padding_idx if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else None
        for name in names.values():
            found.setdefault(name, set()).add(row)
    return {name: row for name, (row, *others) in found.items() if row is not None and not others}


def without_rows(sums: Mapping[str, Tensor], rows: Mapping[str, int]) -> Gradients:
    """Return noisy sums with zeros in some rows.

    Args:
        sums: Tensors by name; they stay as they are.
        rows: Number of the row, for names of some of them.

    Examples:
        >>> import torch
        >>> without_rows({"a": torch.ones(2, 3), "b": torch.ones(2)}, {"a": 1})
        {'a': tensor([[1., 1., 1.],
                [0., 0., 0.]]), 'b': tensor([1., 1.])}
    """
    left = dict(sums)
    for name, row in rows.items():
        left[name] = sums[name].clone()
        left[name][row] = 0
    return left
