"""Tests that find a model whose examples see each other, on batches that are made up.

They run in the model's present mode, at random weights, in batches of several sizes, before the first batch and at
random times after it: of two examples both are tried, since one may see the other and not be seen (a sum over the
batch so far), of more one at random. A refusal depends on no record.

A BatchNorm that is frozen, as in the first layers of a model that was trained on other data, maps each example by
constants (`fedfair.gradients.known_layers.is_fixed_norm`). It is taken as a part of what a frozen first part of the
model makes of each record: in front of it nothing may be trained (`refuse_trained_before_norms`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from fedfair.gradients.known_layers import is_fixed_norm
from fedfair.gradients.layer_gradients import flat
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.gradients.model_state import ModelState, forgetting
from fedfair.gradients.paths import gradient, losses_of
from fedfair.gradients.trial import Trial, at_random_weights, evaluating, seeded

_PAIR = 2
SIZES = (_PAIR, 7, 65)
"""Examples in the batches that are made up."""

_EXTREME = 1e4  # times larger than usual: opens switches that depend on a record's size


class MixingError(ValueError):
    """Examples of a batch see each other, or what a model keeps of another batch."""


class _Seen(NamedTuple):
    """What one example's loss and gradient are in a batch."""

    loss: Tensor
    gradient: Tensor


def refuse_interaction(trial: Trial, sizes: Sequence[int] = SIZES) -> None:
    """Raise `MixingError` if an example's loss depends on another one, or on a batch before.

    Raises what the model raises if it cannot be run on such a batch.
    """
    with seeded(secrets.randbits(32), trial.x.device), at_random_weights(trial.model):
        state = ModelState(trial.model)  # at these weights, else restoring it would bring back those before
        try:
            for size in sizes:
                for row in range(size) if size == _PAIR else (secrets.randbelow(size),):
                    _refuse_at(trial, size, row, state)
        finally:
            state.restore()


def _refuse_at(trial: Trial, size: int, row: int, before: ModelState) -> None:
    """Try one size of batch, at one row."""
    model, seed = trial.model, secrets.randbits(32)
    x, y = _batch(trial, size, before)
    others, labels = trial.inputs(size, _EXTREME), y[row].expand_as(y).clone()  # no class as often as in y
    others[row] = x[row]
    first = _seen(trial, x, y, row, seed)
    after = ModelState(model)
    before.restore()
    among_others = _seen(trial, others, labels, row, seed)
    _refuse_changes(model, after.differences(ModelState(model)))
    if not _is_alike(first, _seen(trial, x, y, row, seed)):
        _refuse(model, "gives the same batch another output after it has had a different one: it keeps something of "
                       "the examples, or draws random numbers that no seed repeats; remove what does so")
    if not _is_alike(first, among_others) or _reaches_others(trial, x, y, row, seed):
        _refuse(model, "gives an example another loss when the other examples of its batch change: its examples "
                       "interact, so clipping one example's gradient bounds nothing; remove what mixes them")
    with evaluating(model), torch.no_grad():
        together, alone = model(x)[row], model(x[row : row + 1])
    if together.shape != alone.shape[1:] or not is_close(together, alone[0], 1.0):
        _refuse(model, "gives an example another output when it is alone in its batch: its examples interact, so "
                       "clipping one example's gradient bounds nothing; remove what mixes them")


def _batch(trial: Trial, size: int, before: ModelState) -> tuple[Tensor, Tensor]:
    """Make up a batch and its targets."""
    x = trial.inputs(size)
    with torch.no_grad():
        output = trial.model(x)
    before.restore()
    if len(output) != size:
        _refuse(trial.model, f"gives {len(output)} outputs for {size} examples: its examples interact, so clipping one "
                             "example's gradient bounds nothing; keep the batch as the first dimension")
    if output.is_complex() or output.isnan().any():
        _refuse(trial.model, "gives complex numbers: return real logits" if output.is_complex() else
                "gives outputs that are no numbers (NaN) for made-up examples: its weights are none, or it takes a "
                "logarithm or a quotient that not every input has; mend that before it is trained")
    return x, trial.targets(output)


def _seen(trial: Trial, x: Tensor, y: Tensor, row: int, seed: int) -> _Seen:
    """Return one example's loss in a batch, and that loss's gradient with respect to the trained parameters."""
    with seeded(seed, x.device):
        loss = losses_of(trial.loss, trial.model(x), y)[row]
    return _Seen(loss.detach(), flat(gradient(loss, trained_parameters(trial.model)[0])))


def _reaches_others(trial: Trial, x: Tensor, y: Tensor, row: int, seed: int) -> bool:
    """Say whether one example's loss has a slope along another example's inputs, or its embedded words."""
    inputs = [x.clone().requires_grad_()] if x.is_floating_point() else []
    with seeded(seed, x.device), _embedded(trial.model, len(x), inputs):
        loss = losses_of(trial.loss, trial.model(inputs[0] if inputs else x), y)[row]
    slopes = torch.autograd.grad(loss, inputs, allow_unused=True) if inputs and loss.requires_grad else ()
    others = torch.arange(len(x), device=x.device) != row
    return any(bool(slope[others].any()) for slope in slopes if slope is not None)


@contextmanager
def _embedded(model: nn.Module, size: int, kept: list[Tensor]) -> Iterator[None]:
    """Keep the outputs of embeddings with one row for each of `size` examples, as leaves of autograd's graph."""
    def keep(layer: nn.Module, args: object, output: Tensor) -> Tensor | None:
        """Replace the output by a leaf."""
        if len(output) != size:
            return None
        kept.append(output.detach().requires_grad_())
        return kept[-1] * 1  # a later layer may overwrite it

    hooks = [layer.register_forward_hook(keep) for layer in model.modules() if isinstance(layer, nn.Embedding)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _refuse_changes(model: nn.Module, changed: list[str]) -> None:
    """Raise `MixingError` if what a model keeps depends on the batch that it was given."""
    if changed:
        _refuse(model, f"changes {', '.join(map(repr, changed))} whenever it is given a batch: what it keeps of the "
                       "examples would leave without clipping and without noise; remove the layer that does so")


def _refuse(model: nn.Module, sentence: str) -> NoReturn:
    """Raise `MixingError` that says so of the model."""
    raise MixingError(f"{type(model).__name__} {sentence}")


def _is_alike(first: _Seen, second: _Seen) -> bool:
    """Say whether two losses and their gradients agree but for rounding."""
    precision = torch.finfo(first.loss.dtype).eps ** 0.75
    return all(torch.allclose(a, b, rtol=precision, atol=precision * float(a.abs().max().nan_to_num(0.0)),
                              equal_nan=True) for a, b in zip(first, second, strict=True) if a.numel())


def is_close(actual: Tensor, expected: Tensor, scale: float) -> bool:
    """Say whether two tensors agree to about half the digits of their dtype, relative to `scale`, a number."""
    if not math.isfinite(scale):
        return False
    tolerance = torch.finfo(expected.dtype).eps ** 0.5
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def refuse_trained_before_norms(trial: Trial) -> None:
    """Raise `MixingError` if a frozen BatchNorm has something trained in front of it, or cannot be tried.

    A batch that is made up goes through the model; autograd says whether what reaches the layer depends on a parameter
    that is trained. A layer that is not reached proves nothing, and is refused.
    """
    norms = {layer: name for name, layer in trial.model.named_modules() if is_fixed_norm(layer)}
    if not norms:
        return
    draws = seeded(secrets.randbits(32), trial.x.device)
    with draws, torch.enable_grad(), forgetting(trial.model), _watching(norms) as reached:
        try:
            trial.model(trial.inputs(3))
        except Exception as error:
            raise MixingError(f"{_named(norms, next(iter(norms)))} is frozen, but whether anything is trained in front "
                              "of it cannot be seen, because the model cannot be run on random inputs "
                              f"({type(error).__name__}): use GroupNorm or LayerNorm instead") from None
    for layer in norms:
        if layer not in reached:
            raise MixingError(f"{_named(norms, layer)} is not reached by a batch: remove it")
        if reached[layer]:
            raise MixingError(f"{_named(norms, layer)} is frozen, but parameters in front of it are trained, to which "
                              "its statistics do not belong: freeze these too (requires_grad_(False)), or use "
                              "GroupNorm or LayerNorm instead")


@contextmanager
def _watching(norms: dict[nn.Module, str]) -> Iterator[dict[nn.Module, bool]]:
    """Yield whether what has reached each layer depends on trained parameters."""
    reached: dict[nn.Module, bool] = {}

    def see(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Look at the inputs of a call."""
        reached[layer] = reached.get(layer, False) or any(value.requires_grad for value in (*given, *named.values()))

    hooks = [layer.register_forward_pre_hook(see, with_kwargs=True) for layer in norms]
    try:
        yield reached
    finally:
        for hook in hooks:
            hook.remove()


def _named(norms: dict[nn.Module, str], layer: nn.Module) -> str:
    """Name a layer, and say what it is."""
    return f"layer '{norms[layer]}' ({type(layer).__name__})"
