"""The ways to a batch's per-example gradients, from the fastest to the most general.

`chained` and `recorded` send the whole batch through the model, so they take only models whose layers are known not to
mix examples (`fedfair.gradients.known_layers`). `vectorised` and `one_at_a_time` take any model: each example goes
through it as a batch of one, and what the model keeps of it is put back (`fedfair.gradients.model_state`).

`torch.func.vmap` cannot follow PyTorch's fused recurrent layers. So Opacus's DPLSTM, DPGRU or DPRNN, which computes
what nn.LSTM, nn.GRU or nn.RNN computes, step by step, stands in for the layer while a batch is vectorised, with the
layer's own parameters (`_stand_ins`); the model never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedfair.gradients.known_layers import is_known, is_untouched
from fedfair.gradients.layer_gradients import Gradients, Materialised
from fedfair.gradients.layer_probe import LayerProbe, Loss, Probe, trained_parameters
from fedfair.gradients.layers import LAYERS
from fedfair.gradients.model_state import forgetting
from fedfair.gradients.passes import Pass, UnreadableError, by_autograd, by_hand
from fedfair.gradients.trial import seeded, seeds

Path = Callable[[nn.Module, Loss, Tensor, Tensor], Probe]
_SETTINGS = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
_FUSED = (nn.LSTM, nn.GRU, nn.RNN)
_made: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()

Values = dict[str, Tensor]
"""Parameters by their path in a model."""


def chained(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Read a plain chain of layers, without autograd; raises `UnreadableError` for any other model."""
    return _read(by_hand, model, loss, x, y)


def recorded(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Read known layers as autograd goes through them; raises `UnreadableError` for any other model."""
    return _read(by_autograd, model, loss, x, y)


def _read(pass_: Pass, model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Compute the gradients from each layer's inputs and output gradients.

    Raises `UnreadableError` for a layer that is not known to keep examples apart, a layer with parameters that
    `fedfair.gradients.layers` does not cover, a parameter that is used twice, or a layer whose inputs do not have one
    row per example.
    """
    trained, owned = trained_parameters(model)
    if not is_known(model) or not all(type(layer) in LAYERS and {*names} <= {"weight", "bias"}
                                      for layer, names in owned.items()):
        raise UnreadableError
    losses, calls = pass_(model, x, lambda output: losses_of(loss, output, y), owned)
    used = [name for call in calls for name in owned[call.layer].values()]
    if len(used) > len(set(used)) or any(len(call.inputs) != len(x) for call in calls):
        raise UnreadableError
    with torch.no_grad():
        parts = [part for call in calls for part in LAYERS[type(call.layer)](
            call.layer, owned[call.layer], call.inputs, call.output_gradients)]
        return LayerProbe(parts, losses, trained)


def vectorised(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Materialise the per-example gradients with `torch.func.vmap`: each example is alone in its batch."""
    trained, owned = trained_parameters(model)
    # Each path once: functional_call, left to find tied ones, does not restore a layer that a model holds twice.
    names = {f"{prefix}.{attribute}" if prefix else attribute: name for prefix, layer in model.named_modules()
             for attribute, name in owned.get(layer, {}).items()}
    with forgetting(model), _stand_ins(model) as renamed:

        def one_loss(parameters: Gradients, x_i: Tensor, y_i: Tensor) -> tuple[Tensor, Tensor]:
            """Return one example's loss, to be differentiated, and its value."""
            by_path = renamed({path: parameters[name] for path, name in names.items()})
            output = torch.func.functional_call(model, by_path, (x_i.unsqueeze(0),), tie_weights=False)
            value = losses_of(loss, output, y_i.unsqueeze(0))[0]
            return value, value.detach()

        one_gradient = torch.func.grad(one_loss, has_aux=True)
        values = {name: parameter.detach() for name, parameter in trained.items()}
        gradients, losses = torch.func.vmap(one_gradient, in_dims=(None, 0, 0), randomness="different")(values, x, y)
    return LayerProbe([Materialised(gradients)], losses, trained)


def one_at_a_time(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Materialise the per-example gradients, each by a pass of its own.

    No example sees what the model keeps of another, nor another's random numbers: their seeds are drawn beforehand.
    """
    trained, _ = trained_parameters(model)
    rows, losses = [], []
    for i, seed in enumerate(seeds(len(x))):
        with forgetting(model), seeded(seed, x.device):
            value = losses_of(loss, model(x[i : i + 1]), y[i : i + 1])[0]
            rows.append(gradient(value, trained))
            losses.append(value.detach())
    gradients = {name: torch.stack([row[name] for row in rows]) for name in trained}
    return LayerProbe([Materialised(gradients)], torch.stack(losses), trained)


def gradient(value: Tensor, trained: Mapping[str, nn.Parameter]) -> Gradients:
    """Return autograd's gradient of a scalar, zeros for parameters that it does not depend on."""
    gradients = torch.autograd.grad(value, list(trained.values()), allow_unused=True, materialize_grads=True)
    return {name: part.to_dense() for name, part in zip(trained, gradients, strict=True)}


def losses_of(loss: Loss, output: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each example, `[B]`; raises `ValueError` for another shape."""
    losses = loss(output, y)
    if losses.shape != (len(y),):
        raise ValueError(
            f"the loss has shape {tuple(losses.shape)} for {len(y)} examples: it must be one number an example "
            "(reduction='none'), since each example's gradient is clipped on its own"
        )
    return losses


@contextmanager
def _stand_ins(model: nn.Module) -> Iterator[Callable[[Values], Values]]:
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
