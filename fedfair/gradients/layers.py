"""The layers whose gradients are known for each example, and how: by exact type, in `LAYERS`.

Each function takes what a layer was called with and the gradients of its outputs, and returns its
`fedfair.gradients.layer_gradients`: factors where they cost less than materialised gradients, which is decided by their
sizes (Bu et al. 2022, "mixed ghost clipping").
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from fedfair.gradients.layer_gradients import LayerGradients, Lookups, Materialised, Names, OuterProducts, Turned


def linear(layer: nn.Linear, names: Names, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Take inputs `[B, ..., p]` and output gradients `[B, ..., q]`, with any number of positions between."""
    return _products(names, layer.weight.shape, _positions(inputs), _positions(deltas))


def _products(names: Names, shape: torch.Size, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Return products of inputs `[B, T, p]` and output gradients `[B, T, q]`, summed over T, for a weight of `shape`.

    Positions are compared pairwise while that is cheaper than materialising the products.
    """
    positions, numbers = inputs.shape[1], shape.numel()
    if "weight" in names and (positions == 1 or positions * (shape[0] + numbers // shape[0]) <= numbers):
        return [OuterProducts(names, shape, inputs, deltas)]
    full = {"weight": lambda: torch.bmm(deltas.transpose(1, 2), inputs).view(-1, *shape), "bias": lambda: deltas.sum(1)}
    return [Materialised({name: full[attribute]() for attribute, name in names.items()})]


def conv2d(layer: nn.Conv2d, names: Names, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Take inputs `[B, C, H, W]` and output gradients `[B, O, H', W']`; any stride, padding, dilation and groups.

    Multiplies patches by output gradients where the patches are not much larger than the gradients, or than the output:
    few pixels, or small patches, for the number of channels. Else convolves once, with the batch as channel groups.
    """
    if "weight" not in names:
        return [Materialised({names["bias"]: deltas.sum((2, 3))})]
    padding = layer._reversed_padding_repeated_twice
    inputs = F.pad(inputs, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    batch, shape, pixels = len(inputs), layer.weight.shape, deltas.shape[2] * deltas.shape[3]
    if layer.groups == 1 and min(pixels, shape[1:].numel()) <= 2 * shape[0]:
        return _by_patches(layer, names, inputs, deltas)
    gradients: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        inputs.reshape(1, -1, *inputs.shape[2:]), (batch * shape[0], *shape[1:]),
        deltas.reshape(1, -1, *deltas.shape[2:]), layer.stride, 0, layer.dilation, batch * layer.groups)
    full = {"weight": lambda: gradients.view(batch, *shape), "bias": lambda: deltas.sum((2, 3))}
    return [Materialised({name: full[attribute]() for attribute, name in names.items()})]


def _by_patches(layer: nn.Conv2d, names: Names, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Multiply output gradients `[B, O, H', W']` by what the kernel meets at each pixel of padded inputs.

    Copying long rows makes the patches of `F.unfold` up to ten times faster: along the channels and a row of the
    kernel, `k C` numbers, or along a row of pixels, `W'`.
    """
    rows, (height, width) = deltas.flatten(2).transpose(1, 2), layer.kernel_size
    along_channels = inputs.shape[1] * width >= deltas.shape[3]
    if along_channels:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    for dimension, (size, stride, dilation) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation,
                                                             strict=True), 2):
        inputs = inputs.unfold(dimension, dilation * (size - 1) + 1, stride)[..., ::dilation]
    outputs, channels = layer.weight.shape[:2]
    if not along_channels:
        patches = inputs.permute(0, 1, 4, 5, 2, 3).reshape(len(inputs), channels * height * width, -1)
        return _products(names, layer.weight.shape, patches.transpose(1, 2), rows)
    patches = inputs.permute(0, 2, 3, 4, 5, 1).reshape(len(inputs), -1, height * width * channels)
    turned = _products(names, torch.Size((outputs, height, width, channels)), patches, rows)
    return [Turned(part, names["weight"], (0, 2, 3, 1)) for part in turned]


def embedding(layer: nn.Embedding, names: Names, tokens: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Take tokens `[B, ...]` and output gradients `[B, ..., q]`; the padding token has no gradient."""
    tokens, deltas = tokens.reshape(len(tokens), -1), _positions(deltas)
    if layer.padding_idx is not None:
        deltas = deltas * (tokens != layer.padding_idx).unsqueeze(2)
    return [Lookups(names["weight"], layer.weight.shape, tokens, deltas)]


def layer_norm(layer: nn.LayerNorm, names: Names, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Take inputs and output gradients `[B, ..., *normalized_shape]`."""
    normalised = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    between = tuple(range(1, inputs.dim() - len(layer.normalized_shape)))
    return _scale_and_shift(names, normalised, deltas, between)


def group_norm(layer: nn.GroupNorm, names: Names, inputs: Tensor, deltas: Tensor) -> list[LayerGradients]:
    """Take inputs and output gradients `[B, C, ...]`."""
    normalised = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return _scale_and_shift(names, normalised, deltas, tuple(range(2, inputs.dim())))


LAYERS: dict[type[nn.Module], Callable[..., list[LayerGradients]]] = {
    nn.Linear: linear, nn.Conv2d: conv2d, nn.Embedding: embedding, nn.LayerNorm: layer_norm, nn.GroupNorm: group_norm,
}
"""The known layers, by exact type: a subclass may compute something else."""


def _positions(values: Tensor) -> Tensor:
    """Return `[B, ..., p]` as `[B, T, p]`."""
    return values.reshape(len(values), -1, values.shape[-1])


def _scale_and_shift(names: Names, normalised: Tensor, deltas: Tensor, summed: tuple[int, ...]) -> list[LayerGradients]:
    """Return the gradients of an elementwise `weight * normalised + bias`, summed over the dimensions `summed`."""
    full = {"weight": normalised * deltas, "bias": deltas}
    return [Materialised({name: full[attribute].sum(summed) if summed else full[attribute]
                          for attribute, name in names.items()})]
