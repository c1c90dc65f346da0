"""BatchNorms that are frozen, as in the first layers of a model that was trained on other data.

Such a layer maps each example by constants (`fedfair.gradients.known_layers.is_fixed_norm`). It is taken as a part of
what a frozen first part of the model makes of each record: in front of it nothing may be trained.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedfair.gradients.interaction import MixingError
from fedfair.gradients.known_layers import is_fixed_norm
from fedfair.gradients.model_state import forgetting
from fedfair.gradients.trial import Trial, seeded


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
