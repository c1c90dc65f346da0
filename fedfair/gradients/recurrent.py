"""Recurrent layers in a form that `torch.func.vmap` can follow: Opacus's, in place of PyTorch's fused ones.

A DPLSTM, DPGRU or DPRNN computes what nn.LSTM, nn.GRU or nn.RNN computes, step by step. It stands in for the layer
while a batch is vectorised, with the layer's own parameters; the model never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from fedfair.gradients.known_layers import is_untouched

_SETTINGS = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
_FUSED = (nn.LSTM, nn.GRU, nn.RNN)
_made: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()

Values = dict[str, Tensor]
"""Parameters by their path in a model."""


@contextmanager
def stand_ins(model: nn.Module) -> Iterator[Callable[[Values], Values]]:
    """Put Opacus's layers in the place of a model's recurrent layers while the context lasts.

    Yields a function from the values of the model's parameters, by path, to those of the parameters that it has now.
    """
    fused = {path: layer for path, layer in model.named_modules() if type(layer) in _FUSED and is_untouched(layer)}
    places = [(parent._modules, name, child) for parent in list(model.modules())
              for name, child in parent._modules.items() if child in fused.values()]
    for children, name, child in places:
        children[name] = _stand_in(child)
    try:
        yield lambda values: _renamed(values, fused)
    finally:
        for children, name, child in places:
            children[name] = child


def _renamed(values: Values, fused: dict[str, nn.Module]) -> Values:
    """Return the values with those of the recurrent layers under the names that Opacus gives them."""
    if not fused:
        return values
    renamed = dict(values)
    for path, layer in fused.items():
        for inner, outer in _made[layer].old_to_new.items():
            value = renamed.pop(f"{path}.{outer}", None)
            renamed[f"{path}.{inner}"] = getattr(layer, outer).detach() if value is None else value
    return renamed


def _stand_in(layer: Any) -> nn.Module:
    """Return the layer of Opacus that computes what `layer` does, in its mode."""
    from opacus.layers import DPGRU, DPLSTM, DPRNN  # slow to import

    if layer not in _made:
        kind = {nn.LSTM: DPLSTM, nn.GRU: DPGRU, nn.RNN: DPRNN}[type(layer)]
        more = {"nonlinearity": layer.nonlinearity} if type(layer) is nn.RNN else {}
        made = kind(**{name: getattr(layer, name) for name in _SETTINGS}, **more)
        made.flatten_parameters = lambda: None  # models that call it expect a layer to have it
        _made[layer] = made.to(layer.weight_ih_l0)
    stand_in: nn.Module = _made[layer]
    return stand_in.train(layer.training)
