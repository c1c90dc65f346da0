"""Layers of PyTorch that are known to keep the examples of a batch apart, along its first dimension.

A model of `Sequential`s that holds nothing else mixes no examples by construction. Anything with a `forward` of its
own is not known, nor is a layer with hooks or replaced methods, a parametrised one, or a subclass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from fedfair.gradients.kernels import Tanh

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TENSORS = {nn.Parameter, Tensor, type(None)}

Rule = Callable[[Any, int], bool]
"""From a layer and its inputs' number of dimensions to whether it keeps the rows of the first one apart."""


def is_known(model: nn.Module) -> bool:
    """Say whether a model holds known layers alone, nested in `Sequential`s, as PyTorch defines them."""
    if any(getattr(hooks_of_all, f"_global{hooks}") for hooks in _HOOKS):
        return False
    return all((type(layer) in _RULES or type(layer) is nn.Sequential) and is_untouched(layer)
               and (type(layer) not in _NORMS or is_fixed_norm(layer)) for layer in model.modules())


def is_fixed_norm(layer: nn.Module) -> bool:
    """Say whether a layer is a BatchNorm that maps each number by constants, and so keeps examples apart.

    `(x - mean) / sqrt(variance + eps) weight + bias` reads one example at a time if mean and variance are tensors that
    the layer has, and it neither takes them from the batch nor changes them: that is, if it is in evaluation mode. All
    is looked up as `forward` does, so that an attribute in front of a buffer deceives nobody.
    """
    if type(layer) not in _NORMS or not is_untouched(layer) or layer.training is not False:
        return False
    constants = (layer.running_mean, layer.running_var)
    trained = [value for value in (layer.weight, layer.bias) if value is not None and value.requires_grad]
    return all(type(value) is Tensor and not value.requires_grad for value in constants) and not trained


def keeps_rows(model: nn.Module, x: Tensor) -> bool:
    """Say whether a model is known, and every layer keeps the rows of what it gets apart when `x` goes through."""
    if not is_known(model):
        return False
    values = x
    with torch.no_grad():
        for layer in leaves(model):
            if not _RULES[type(layer)](layer, values.dim()):
                return False
            values = layer(values)
            if not isinstance(values, Tensor) or values.dim() == 0 or len(values) != len(x):
                return False
    return True


def leaves(model: nn.Module) -> list[nn.Module]:
    """Return the layers of nested `Sequential`s in call order."""
    return [leaf for part in model for leaf in leaves(part)] if type(model) is nn.Sequential else [model]


def is_untouched(layer: nn.Module) -> bool:
    """Say whether a layer computes what its class does, with parameters of the usual kind."""
    attributes = vars(layer)
    if any(map(attributes.__getitem__, _HOOKS)):
        return False
    kinds = {*map(type, layer._parameters.values()), *map(type, layer._buffers.values())}
    return kinds <= _TENSORS and _methods(type(layer)).isdisjoint(attributes)  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _methods(kind: type[nn.Module]) -> frozenset[str]:
    """Return the names under which a layer could carry a replacement of what its class defines."""
    return frozenset({name for name in dir(kind) if callable(getattr(kind, name))} | {"_compiled_call_impl"})


def _always(layer: Any, rank: int) -> bool:
    """Accept a layer that maps each number by itself."""
    return True


def _with_batch(dimensions: int) -> Rule:
    """Accept `[B, C, ...]` with so many dimensions after the channels: without one, the first are the channels."""
    return lambda layer, rank: rank == dimensions + 2


def _of_rank(least: int) -> Rule:
    """Accept inputs with at least so many dimensions."""
    return lambda layer, rank: rank >= least


def _along(attribute: str) -> Rule:
    """Accept a layer that works along the dimension called `attribute` if that is not the first."""
    def rule(layer: Any, rank: int) -> bool:
        """Count the dimension from the front."""
        dimension = getattr(layer, attribute)
        return type(dimension) is int and (dimension if dimension >= 0 else dimension + rank) >= 1

    return rule


def _normalises(layer: Any, rank: int) -> bool:
    """Accept a norm over the last dimensions unless they are all."""
    return rank > len(layer.normalized_shape)


def _pads(layer: Any, rank: int) -> bool:
    """Accept padding, a pair of numbers for each of the last dimensions, unless it reaches the first."""
    return len(layer.padding) // 2 < rank


def _without_statistics(dimensions: int) -> Rule:
    """Accept an instance norm that keeps nothing of what it has seen."""
    return lambda layer, rank: rank == dimensions + 2 and not layer.track_running_stats


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # known while `is_fixed_norm`

_RULES: dict[type[nn.Module], Rule] = {
    **dict.fromkeys((
        nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.RReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
        nn.Sigmoid, nn.LogSigmoid, nn.Tanh, Tanh, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Softplus, nn.Softsign,
        nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold, nn.Dropout, nn.AlphaDropout), _always),
    nn.Linear: _of_rank(2), nn.GroupNorm: _of_rank(2), nn.LocalResponseNorm: _of_rank(3), nn.PixelShuffle: _of_rank(4),
    nn.Embedding: lambda layer, rank: rank >= 1 and layer.max_norm is None,
    nn.LayerNorm: _normalises, nn.RMSNorm: _normalises,
    nn.Flatten: _along("start_dim"), nn.Unflatten: _along("dim"), nn.GLU: _along("dim"),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmin), _along("dim")),
    **dict.fromkeys((nn.Conv1d, nn.ConvTranspose1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d,
                     nn.AdaptiveMaxPool1d, nn.Dropout1d), _with_batch(1)),
    **dict.fromkeys((nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
                     nn.AdaptiveMaxPool2d, nn.Dropout2d, nn.Softmax2d), _with_batch(2)),
    **dict.fromkeys((nn.Conv3d, nn.ConvTranspose3d, nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d,
                     nn.AdaptiveMaxPool3d, nn.Dropout3d), _with_batch(3)),
    nn.BatchNorm1d: lambda layer, rank: rank in (2, 3), nn.BatchNorm2d: _with_batch(2), nn.BatchNorm3d: _with_batch(3),
    nn.InstanceNorm1d: _without_statistics(1), nn.InstanceNorm2d: _without_statistics(2),
    nn.InstanceNorm3d: _without_statistics(3),
    **dict.fromkeys((nn.ZeroPad1d, nn.ConstantPad1d, nn.ReflectionPad1d, nn.ReplicationPad1d, nn.ZeroPad2d,
                     nn.ConstantPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d), _pads),
}
"""By exact type."""


