"""Per-example gradients as norms, inner products and weighted sums: one forward and one backward pass.

A private method needs of each example only `|g_i|`, then `sum_i c_i g_i` for coefficients that follow from the norms.
`per_example` keeps what goes into each layer and what comes back (`fedfair.gradients.passes`), and computes both from
that (`fedfair.gradients.layers`). Other models fall back to materialised per-example gradients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedfair.gradients.layers import LAYERS, Gradients, LayerGradients, Materialised, norms
from fedfair.gradients.passes import Pass, UnreadableError, by_autograd, by_hand

Loss = Callable[[Tensor, Tensor], Tensor]
"""`loss(output [B, ...], target [B, ...]) -> [B]`: one number per example."""

log = logging.getLogger(__name__)


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
        for layer in self._layers:
            sums |= layer.weighted_sum(coefficients)
        return {name: sums[name] if name in sums else torch.zeros_like(p) for name, p in self._trained.items()}


def per_example(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Probe the gradients of `loss(model(x), y)` with respect to every parameter that requires a gradient.

    The model's `.grad` stays as it is. A model's first batch of several examples is also used to check that examples do
    not interact, and that the chosen path gives the right gradients.

    Args:
        model: Any module whose output for an example depends on no other example of the batch.
        loss: From outputs `[B, ...]` and targets `[B, ...]` to one loss per example, `[B]`; not their mean.
        x: Inputs, `[B, ...]`. B may be 0: then every sum is zero.
        y: Targets, `[B, ...]`.

    Returns:
        The norms, losses, inner products and weighted sums of the B per-example gradients.

    Raises:
        ValueError: If a layer mixes examples, the loss is not one number per example, or nothing is trained.
    """
    if len(x) == 0:
        trained, _ = trained_parameters(model)
        first = next(iter(trained.values()))
        return LayerProbe([], torch.zeros(0, device=first.device, dtype=first.dtype), trained)
    path = _paths.get(model) or _choose_path(model, loss, x, y, _PATHS)
    try:
        probe = path(model, loss, x, y)
    except UnreadableError:
        path = _choose_path(model, loss, x, y, _PATHS[_PATHS.index(path) + 1:])
        probe = path(model, loss, x, y)
    if len(x) > 1:  # a batch of one shows nothing about interaction
        _paths[model] = path
    return probe


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raise `ValueError` if a layer's output for one example depends on the others in its batch (BatchNorm), or a layer
    changes its weights depending on its inputs (an embedding with `max_norm`).
    """
    for name, layer in model.named_modules():
        if getattr(layer, "max_norm", None) is not None:
            raise ValueError(
                f"layer '{name}' ({type(layer).__name__}) has max_norm = {layer.max_norm}: it scales the weights of "
                "every word that a batch holds, without noise, so anybody can see which those are; leave max_norm out"
            )
        if isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"layer '{name}' ({type(layer).__name__}) mixes the examples of a batch, so clipping one example's "
                "gradient bounds nothing: use GroupNorm or LayerNorm instead"
            )


# The paths, from the fastest to the most general.


def _chained(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Read a plain chain of layers, without autograd; raises `UnreadableError` for any other model."""
    return _read(by_hand, model, loss, x, y)


def _recorded(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Read the layers of any model as autograd goes through them."""
    return _read(by_autograd, model, loss, x, y)


def _read(pass_: Pass, model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Compute the gradients from each layer's inputs and output gradients.

    Raises `UnreadableError` for an unknown layer, a parameter that is used twice, or a layer whose inputs do not have
    one row per example.
    """
    trained, owned = trained_parameters(model)
    if not all(type(layer) in LAYERS and {*names} <= {"weight", "bias"} for layer, names in owned.items()):
        raise UnreadableError
    losses, calls = pass_(model, x, lambda output: _losses(loss, output, y), owned)
    used = [name for call in calls for name in owned[call.layer].values()]
    if len(used) > len(set(used)) or any(len(call.inputs) != len(x) for call in calls):
        raise UnreadableError
    with torch.no_grad():
        parts = [part for call in calls for part in LAYERS[type(call.layer)](
            call.layer, owned[call.layer], call.inputs, call.output_gradients)]
        return LayerProbe(parts, losses, trained)


def _vectorised(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Materialise the per-example gradients with `torch.func.vmap`."""
    trained, owned = trained_parameters(model)
    # Each path once: functional_call, left to find tied ones, does not restore a layer that a model holds twice.
    names = {f"{prefix}.{attribute}" if prefix else attribute: name for prefix, layer in model.named_modules()
             for attribute, name in owned.get(layer, {}).items()}

    def one_loss(parameters: Gradients, x_i: Tensor, y_i: Tensor) -> tuple[Tensor, Tensor]:
        """Return one example's loss, to be differentiated, and its value."""
        by_path = {path: parameters[name] for path, name in names.items()}
        output = torch.func.functional_call(model, by_path, (x_i.unsqueeze(0),), tie_weights=False)
        value = _losses(loss, output, y_i.unsqueeze(0))[0]
        return value, value.detach()

    one_gradient = torch.func.grad(one_loss, has_aux=True)
    values = {name: parameter.detach() for name, parameter in trained.items()}
    gradients, losses = torch.func.vmap(one_gradient, in_dims=(None, 0, 0), randomness="different")(values, x, y)
    return LayerProbe([Materialised(gradients)], losses, trained)


def _one_at_a_time(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Materialise the per-example gradients, each by a pass of its own."""
    trained, _ = trained_parameters(model)
    rows, losses = [], []
    for i in range(len(x)):
        value = _losses(loss, model(x[i : i + 1]), y[i : i + 1])[0]
        rows.append(_gradient(value, trained))
        losses.append(value.detach())
    gradients = {name: torch.stack([row[name] for row in rows]) for name in trained}
    return LayerProbe([Materialised(gradients)], torch.stack(losses), trained)


Path = Callable[[nn.Module, Loss, Tensor, Tensor], Probe]
_paths: WeakKeyDictionary[nn.Module, Path] = WeakKeyDictionary()


_PATHS: tuple[Path, ...] = (_chained, _recorded, _vectorised)


def _choose_path(model: nn.Module, loss: Loss, x: Tensor, y: Tensor, paths: tuple[Path, ...]) -> Path:
    """Return the first path that is right on this batch; if there is none, one example at a time, always right."""
    refuse_mixing_layers(model)
    with _unchanged(model):
        deterministic = _deterministic(model, x)
    if deterministic:
        _refuse_interaction(model, x)
    with _evaluating(model):
        _refuse_interaction(model, x)
        for path in paths:
            try:
                if _is_right(path, model, loss, x, y):
                    if path is _vectorised:
                        log.warning("%s: per-example gradients by torch.func, slower than for the layers known here",
                                    type(model).__name__)
                    return path
            except (RuntimeError, UnreadableError):
                continue
    log.warning("%s: per-example gradients one by one, very slow", type(model).__name__)
    return _one_at_a_time


def _is_right(path: Path, model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> bool:
    """Say whether the path's gradients sum to the batch's gradient, and the first few have the norms they have alone.

    The sum shows that no gradient is missing or counted twice. The norms show that each belongs to one example: the
    rows of a layer's inputs may be positions instead of examples.
    """
    probe = path(model, loss, x, y)
    sums = probe.weighted_sum(torch.ones_like(probe.norms))
    expected = _gradient(_losses(loss, model(x), y).sum(), trained_parameters(model)[0])
    alone = _one_at_a_time(model, loss, x[:3], y[:3]).norms
    scale = float(torch.stack([value.square().sum() for value in expected.values()]).sum().sqrt() + alone.max())
    return all(_close(sums[name], value, scale) for name, value in expected.items()) and (
        _close(probe.norms[:3], alone, scale))


def _close(actual: Tensor, expected: Tensor, scale: float) -> bool:
    """Say whether two tensors agree to about half the digits of their dtype, relative to `scale`."""
    tolerance = torch.finfo(expected.dtype).eps ** 0.5
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _deterministic(model: nn.Module, x: Tensor) -> bool:
    """Say whether the model repeats its output nine times: with little dropout, two equal outputs may be chance."""
    with torch.no_grad():
        first = model(x)
        return all(torch.equal(model(x), first) for _ in range(8))


def _refuse_interaction(model: nn.Module, x: Tensor) -> None:
    """Raise `ValueError` if the first example's output changes when the others leave the batch."""
    with torch.no_grad():
        together, alone = model(x)[:1], model(x[:1])
    if together.shape != alone.shape or not _close(together, alone, 1.0):
        raise ValueError(
            f"{type(model).__name__} gives an example another output when it is alone in its batch: its examples "
            "interact, so clipping one example's gradient bounds nothing; remove what mixes them"
        )


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


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Raise `ValueError` if the code inside changes the model's parameters or buffers, and undo the change."""
    kept = {name: value.detach() for values in (model.named_parameters(), model.named_buffers())
            for name, value in values}
    before = {name: value.clone() for name, value in kept.items()}
    yield
    now = dict(model.named_buffers()) | dict(model.named_parameters())
    changed = [name for name, value in before.items() if not torch.equal(now[name], value)]
    for name in changed:
        kept[name].copy_(before[name])
    if changed:
        raise ValueError(
            f"{type(model).__name__} changes {', '.join(map(repr, changed))} whenever it is given a batch: what it "
            "keeps of the examples would leave without clipping and without noise; remove the layer that does so"
        )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch off random layers such as Dropout, so that two passes can be compared."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _gradient(value: Tensor, trained: Mapping[str, nn.Parameter]) -> Gradients:
    """Return autograd's gradient of a scalar, zeros for parameters that it does not depend on."""
    gradients = torch.autograd.grad(value, list(trained.values()), allow_unused=True, materialize_grads=True)
    return {name: gradient.to_dense() for name, gradient in zip(trained, gradients, strict=True)}


def _losses(loss: Loss, output: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each example, `[B]`; raises `ValueError` for another shape."""
    losses = loss(output, y)
    if losses.shape != (len(y),):
        raise ValueError(
            f"the loss has shape {tuple(losses.shape)} for {len(y)} examples: it must be one number an example "
            "(reduction='none'), since each example's gradient is clipped on its own"
        )
    return losses
