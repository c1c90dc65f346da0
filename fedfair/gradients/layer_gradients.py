"""Gradients of all examples with respect to one layer: their norms, inner products and weighted sums.

A layer called with inputs `a` that receives the output gradients `d` gives example i the gradient
`g_i = sum_t d_it a_it'`, summed over positions t (one for a vector, the pixels of a feature map, the words of a text).
Its norm, its inner product with a direction and a weighted sum over examples can be computed without materialising
`g_i` (Goodfellow 2015; Li et al. 2022, "ghost clipping"). What is kept of a layer in each form is a class here;
`fedfair.gradients.layers` chooses among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fedfair.gradients.kernels import sum_of_outer_products

_CANCELLED = 2.0**12  # rounding errors, in units of the dtype's, that a squared norm must exceed to be believed

Gradients = dict[str, Tensor]
"""A tensor for each parameter name; `[*shape]` for a sum, `[B, *shape]` for every example."""


Names = Mapping[str, str]
"""From a layer's names of its parameters ("weight") to the model's ("2.weight"), without frozen parameters."""


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return all numbers of the tensors in one row, in the order of the mapping: `[P]`."""
    return torch.cat([value.flatten() for value in tensors.values()])


def shaped(row: Tensor, like: Mapping[str, Tensor]) -> Gradients:
    """Return the numbers of a row `[P]` as tensors with the names and shapes of `like`: the inverse of `flat`."""
    pieces = torch.split(row, [value.numel() for value in like.values()])
    return {name: piece.view_as(value) for (name, value), piece in zip(like.items(), pieces, strict=True)}


def memory_format(parameter: Tensor) -> torch.memory_format:
    """Return how a parameter lies in memory; its replacement should lie alike, since the layer's output does."""
    if parameter.dim() == 4:
        _, channels, height, width = parameter.shape
        if parameter.stride() == (channels * height * width, 1, channels * width, channels):
            return torch.channels_last
    return torch.contiguous_format


class Squares(NamedTuple):
    """Squared Euclidean norms, `values` `[B]`, to be believed where they are finite and above `floor`.

    At most as much as the `floor`, times the unit of rounding, can have been lost to numbers too small for the dtype.
    """

    values: Tensor
    floor: Tensor


class LayerGradients(Protocol):
    """The gradients of B examples with respect to one layer's parameters."""

    def squares(self) -> Squares:
        """Return the squared Euclidean norm of each example's gradient."""

    def take(self, rows: Tensor, dtype: torch.dtype) -> LayerGradients:
        """Return the gradients of the examples at `rows`, in another precision."""

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Return each example's inner product with `direction`, a tensor of each parameter's shape: `[B]`."""

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """Return `sum_i coefficients[i] g_i` for coefficients `[B]`."""


def norms(layers: Sequence[LayerGradients], like: Tensor) -> Tensor:
    """Return the Euclidean norm of each example's gradient over all layers, `[B]`, in the precision of `like` `[B]`.

    The square of 1e-25 or 1e25 does not fit into float32, though the norm does. Such norms are computed in float64.
    """
    if not layers or len(like) == 0:
        return torch.zeros_like(like)
    squares = [layer.squares() for layer in layers]
    values, floor = (reduce(torch.add, parts) for parts in zip(*squares, strict=True))
    lengths: Tensor = values.sqrt()
    least, most = (values - floor).aminmax()
    if like.dtype != torch.float64 and not (least.item() > 0 and most.item() < math.inf):
        rows = (~((values > floor) & (values < math.inf))).nonzero().flatten()
        wide = norms([layer.take(rows, torch.float64) for layer in layers], like[rows].double())
        lengths[rows] = wide.to(lengths.dtype)
    return lengths


class Materialised:
    """Materialised gradients, `[B, *shape]` for each name."""

    def __init__(self, gradients: Gradients) -> None:
        self.gradients = gradients

    def squares(self) -> Squares:
        """See `LayerGradients`."""
        rows = self._rows().values()
        values = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows]).square().sum(0)
        return Squares(values, torch.full_like(values, _tiny(values) * sum(row.shape[1] + 1 for row in rows)))

    def take(self, rows: Tensor, dtype: torch.dtype) -> Materialised:
        """See `LayerGradients`."""
        return Materialised({name: gradients[rows].to(dtype) for name, gradients in self.gradients.items()})

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `LayerGradients`."""
        return torch.stack([rows @ direction[name].flatten() for name, rows in self._rows().items()]).sum(0)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        return {name: (coefficients @ rows).view(self.gradients[name].shape[1:]) for name, rows in self._rows().items()}

    def _rows(self) -> Gradients:
        """Return each example's gradient in one row, `[B, numbers]`, also of a parameter that is a single number."""
        return {name: g.reshape(len(g), g.shape[1:].numel()) for name, g in self.gradients.items()}


class OuterProducts:
    """Weight gradients `sum_t d_it a_it'`, kept as inputs `a` `[B, T, p]` and output gradients `d` `[B, T, q]`.

    `|g_i|^2 = sum_ts <a_it, a_is> <d_it, d_is>`; for one position, `|a_i|^2 |d_i|^2`. A bias is the weight of one more
    input that is always 1.
    """

    def __init__(self, names: Names, shape: torch.Size, inputs: Tensor, output_gradients: Tensor) -> None:
        self.weight, self.bias = names["weight"], names.get("bias")
        self.shape, self.inputs, self.deltas = shape, inputs, output_gradients
        self.rounding = torch.finfo(output_gradients.dtype).eps  # of the sums, also where norms are in float64

    def squares(self) -> Squares:
        """See `LayerGradients`."""
        widths = self.inputs.shape[2], self.deltas.shape[2]
        if self.inputs.shape[1] == 1:
            inputs, deltas = (torch.linalg.vector_norm(rows, dim=(1, 2)) for rows in (self.inputs, self.deltas))
            inputs = inputs if self.bias is None else torch.hypot(inputs, torch.ones_like(inputs))
            values = torch.mul(inputs, deltas).square()
            return Squares(values, _floor(inputs.square(), deltas.square(), 1, widths))
        inputs, deltas = (torch.bmm(rows, rows.transpose(1, 2)) for rows in (self.inputs, self.deltas))
        inputs = inputs if self.bias is None else inputs + 1
        return _of_pairs(inputs, deltas, widths, self.rounding, self._square_norm)

    def take(self, rows: Tensor, dtype: torch.dtype) -> OuterProducts:
        """See `LayerGradients`."""
        names = {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})
        taken = OuterProducts(names, self.shape, self.inputs[rows].to(dtype), self.deltas[rows].to(dtype))
        taken.rounding = self.rounding
        return taken

    def _square_norm(self, example: int) -> Tensor:
        """Return that of one example, from its materialised gradient."""
        inputs, deltas = self.inputs[example], self.deltas[example]
        bias = 0.0 if self.bias is None else deltas.sum(0).square().sum()
        return (deltas.t() @ inputs).square().sum() + bias

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `LayerGradients`."""
        bias = None if self.bias is None else direction[self.bias]
        return (F.linear(self.inputs, direction[self.weight].flatten(1), bias) * self.deltas).sum((1, 2))

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        return self.weighted_sums(coefficients, [slice(None)])[0]

    def weighted_sums(self, coefficients: Tensor, spans: Sequence[slice]) -> list[Gradients]:
        """Return the weighted sum over each of some spans of the examples, for coefficients `[B]` of all."""
        scaled = full_precision(coefficients[:, None, None] * self.deltas)
        return [self._sum(scaled[span].flatten(0, 1), self.inputs[span].flatten(0, 1)) for span in spans]

    def _sum(self, scaled: Tensor, inputs: Tensor) -> Gradients:
        """Return the sum of products of rows `[n, q]` and `[n, p]`, by name."""
        weight = sum_of_outer_products(scaled, inputs).view(self.shape)
        return {self.weight: weight} | ({} if self.bias is None else {self.bias: scaled.sum(0)})


class Turned:
    """Gradients of a `weight`, from those of the weight with its dimensions in another `order` (`Tensor.permute`)."""

    def __init__(self, turned: LayerGradients, weight: str, order: tuple[int, ...]) -> None:
        self.turned, self.weight, self.order = turned, weight, order

    def squares(self) -> Squares:
        """See `LayerGradients`."""
        return self.turned.squares()

    def take(self, rows: Tensor, dtype: torch.dtype) -> Turned:
        """See `LayerGradients`."""
        return Turned(self.turned.take(rows, dtype), self.weight, self.order)

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `LayerGradients`."""
        return self.turned.dot({**direction, self.weight: direction[self.weight].permute(self.order)})

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        sums = self.turned.weighted_sum(coefficients)
        back = [self.order.index(dimension) for dimension in range(len(self.order))]
        return sums | {self.weight: sums[self.weight].permute(back).contiguous()}


class Lookups:
    """Embedding gradients, kept as token numbers `[B, T]` and output gradients `[B, T, q]`."""

    def __init__(self, name: str, shape: torch.Size, tokens: Tensor, output_gradients: Tensor) -> None:
        self.name, self.shape, self.tokens, self.deltas = name, shape, tokens, output_gradients
        self.rounding = torch.finfo(output_gradients.dtype).eps  # of the sums, also where norms are in float64

    def squares(self) -> Squares:
        """See `LayerGradients`."""
        same = (self.tokens[:, :, None] == self.tokens[:, None, :]).to(self.deltas.dtype)
        deltas = torch.bmm(self.deltas, self.deltas.transpose(1, 2))
        return _of_pairs(same, deltas, (1, self.deltas.shape[2]), self.rounding, self._square_norm)

    def take(self, rows: Tensor, dtype: torch.dtype) -> Lookups:
        """See `LayerGradients`."""
        taken = Lookups(self.name, self.shape, self.tokens[rows], self.deltas[rows].to(dtype))
        taken.rounding = self.rounding
        return taken

    def _square_norm(self, example: int) -> Tensor:
        """Return that of one example, from its materialised gradient for the words that it holds."""
        words, indices = torch.unique(self.tokens[example], return_inverse=True)
        deltas = self.deltas[example]
        return deltas.new_zeros(len(words), deltas.shape[1]).index_add_(0, indices, deltas).square().sum()

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `LayerGradients`."""
        return (direction[self.name][self.tokens] * self.deltas).sum((1, 2))

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `LayerGradients`."""
        scaled = full_precision(coefficients[:, None, None] * self.deltas).flatten(0, 1)
        return {self.name: scaled.new_zeros(self.shape).index_add_(0, self.tokens.flatten(), scaled)}


def _of_pairs(inputs: Tensor, deltas: Tensor, widths: tuple[int, int], rounding: float,
              materialised: Callable[[int], Tensor]) -> Squares:
    """Return `sum_ts inputs_ts deltas_ts` `[B]` of inner products `[B, T, T]` between positions: squared norms.

    Where positions cancel, only rounding is left of this sum: its error grows with `S^2`, `S = sum_t |a_t| |d_t|`. An
    example whose norm is below 2 % of S (in float32) gets its norm from `materialised`, plus `T S` times the unit of
    rounding: as much as rounding can add to its gradient, wherever that is summed. `widths` are the lengths of the
    vectors that were multiplied.
    """
    squares = torch.mul(inputs, deltas).sum((1, 2))
    of_inputs, of_deltas = (products.diagonal(dim1=1, dim2=2) for products in (inputs, deltas))
    sizes = (of_inputs * of_deltas).clamp(min=0).sqrt().sum(1)
    lost = (squares <= _CANCELLED * rounding * sizes.square()) & (sizes > 0)
    for example in lost.nonzero().flatten().tolist():
        norm = materialised(example).sqrt() + inputs.shape[1] * rounding * sizes[example]
        squares[example] = norm.square()
    return Squares(squares, _floor(of_inputs.sum(1), of_deltas.sum(1), inputs.shape[1], widths))


def _floor(inputs: Tensor, deltas: Tensor, positions: int, widths: tuple[int, int]) -> Tensor:
    """Return the floor of `Squares`, from the squared norms `[B]` of inputs and output gradients of given widths.

    Each product of two vectors may have lost a number below the dtype's smallest, for each of its coordinates.
    """
    tiny = positions * _tiny(deltas)
    return torch.add(deltas * (widths[0] * tiny), inputs, alpha=widths[1] * tiny).add_(positions * tiny)


def full_precision(values: Tensor) -> Tensor:
    """Return values with zeros for those that the dtype does not hold to full precision.

    A factor of 1e-44 has lost all its digits. Times a number of 1e38 it could scale a gradient to more than the clip
    norm; 0 never does.
    """
    return F.hardshrink(values, _tiny(values))


def _tiny(values: Tensor) -> float:
    """Return the smallest number that the values' dtype holds to full precision."""
    return torch.finfo(values.dtype).tiny
