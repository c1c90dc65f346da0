"""Gradients of one linear layer on rows of ones: scores are sums of looked-up weights, sums are counts with weights.

A row phi of d features has the number v in the places of its ones and a constant c at its end. So W phi is v times the
sum of W's columns at those places, and c times its last one; the gradient of a loss with the slopes s is s phi', of
length |s| |phi|. No row is ever written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.gradients.layer_probe import Loss, trained_parameters
from fedfair.gradients.layers import Gradients, full_precision
from fedfair.gradients.passes import UnreadableError, chain_of


class Ones(NamedTuple):
    """Rows phi of d features and a constant.

    Attributes:
        places: Where each row's ones are, d for one that is none, `[n, columns]`, whole numbers.
        values: What a one of each row stands for, `[n]`.
        features: Their number d.
        constant: The last number of every row.
    """

    places: Tensor
    values: Tensor
    features: int
    constant: float

    def norms(self) -> Tensor:
        """Return the length of each row, `[n]`."""
        known = (self.places < self.features).sum(1)
        return (known * self.values.square() + self.constant**2).sqrt()

    def times(self, weight: Tensor) -> Tensor:
        """Return each row times a matrix `[q, d + 1]`: `[n, q]`."""
        table = torch.cat([weight[:, :self.features], weight.new_zeros(len(weight), 1)], 1).t().contiguous()
        total = weight.new_zeros(len(self.places), len(weight))
        for places in self._columns():
            total += table.index_select(0, places)
        return total * self.values[:, None] + self.constant * weight[:, self.features]

    def weighted(self, factors: Tensor) -> Tensor:
        """Return the sum of f_i phi_i' for factors `[n, q]`: `[q, d + 1]`."""
        return torch.stack([self._weighted(column) for column in factors.unbind(1)])

    def _weighted(self, factors: Tensor) -> Tensor:
        """Return the sum of f_i phi_i for factors `[n]`: `[d + 1]`."""
        scaled, total = factors * self.values, factors.new_zeros(self.features + 1)
        for places in self._columns():
            total += torch.bincount(places, scaled, self.features + 1)
        total[self.features] = self.constant * factors.sum()
        return total

    def _columns(self) -> Iterator[Tensor]:
        """Yield the places of each column, `[n]`."""
        yield from (column.long() for column in self.places.unbind(1))


class LookedUpProbe:
    """A probe of a linear layer on rows of ones (`fedfair.gradients.layer_probe.Probe`).

    Args:
        model: One linear layer, alone or in `Sequential`s, all of which is trained, in double precision.
        loss: From outputs `[n, q]` and targets to one loss per example, `[n]`.
        rows: Its inputs, of d + 1 numbers.
        targets: Targets, `[n]`.

    Raises:
        UnreadableError: For another model.

    Examples:
        >>> model = nn.Linear(3, 1, bias=False, dtype=torch.float64)
        >>> rows = Ones(torch.tensor([[0], [1], [2]]), torch.ones(3).double(), 2, 2.0)  # the third has none
        >>> probe = LookedUpProbe(model, lambda output, y: output[:, 0] * y, rows, torch.ones(3))
        >>> probe.norms.square(), probe.weighted_sum(torch.ones(3).double())
        (tensor([5., 5., 4.], dtype=torch.float64), {'weight': tensor([[1., 1., 6.]], dtype=torch.float64)})
    """

    def __init__(self, model: nn.Module, loss: Loss, rows: Ones, targets: Tensor) -> None:
        layer, self._names = _only_layer(model)
        with torch.no_grad():
            output = rows.times(layer.weight) + (0 if layer.bias is None else layer.bias)
        output.requires_grad_()
        losses = loss(output, targets)
        (self._slopes,) = torch.autograd.grad(losses.sum(), output)
        self._rows, self.losses = rows, losses.detach()
        lengths = rows.norms() if layer.bias is None else rows.norms().square().add(1).sqrt()
        self.norms = torch.linalg.vector_norm(self._slopes, dim=1) * lengths

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `fedfair.gradients.layer_probe.Probe`."""
        along = self._rows.times(direction[self._names["weight"]])
        if "bias" in self._names:
            along = along + direction[self._names["bias"]]
        return (self._slopes * along).sum(1)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `fedfair.gradients.layer_probe.Probe`."""
        factors = full_precision(coefficients)[:, None] * self._slopes
        sums = {self._names["weight"]: self._rows.weighted(factors)}
        return sums | ({self._names["bias"]: factors.sum(0)} if "bias" in self._names else {})


def _only_layer(model: nn.Module) -> tuple[nn.Linear, dict[str, str]]:
    """Return a model's only layer, and the model's names of its parameters; raise `UnreadableError` for another."""
    layer, *rest = chain_of(model)
    trained, owned = trained_parameters(model)
    if rest or type(layer) is not nn.Linear or len(trained) < len([*model.parameters()]) or (
            layer.weight.dtype != torch.float64 or layer.weight.device.type != "cpu"):
        raise UnreadableError
    return layer, owned[layer]
