"""Finding a model by its name, published or in a file of the user's, and building it from a seed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfair.mechanisms.randomness import key
from fedfair.models import fit, published
from fedfair.models.published import MODELS, Builder
from fedfair.plugins.registry import unknown
from fedfair.plugins.user_errors import blaming_user_files, place_of
from fedfair.plugins.user_files import defined_in, file_name, user_file

FOLDERS = ("models",)
"""Folders of the user's models. A server sends the name to the clients, so no file elsewhere may be run."""


def file_of(name: str) -> Path | None:
    """Return the user's file with the model called `name`; None if it is a registered model, or if there is no file."""
    return None if name in MODELS else user_file(name, FOLDERS)


def find_model(name: str) -> Builder:
    """Return the builder of the model called `name`, which is registered or a function of the user's.

    A file of that name in one of `FOLDERS` must define the function under that name (with _ where the name has -).
    Raises `ValueError` with the nearest names if there is no such model.
    """
    if name in MODELS:
        return MODELS[name]
    path = file_of(name)
    if path is None:
        raise ValueError(f"{unknown('model', name, MODELS)}, or a file {file_name(name)} in the folder models")
    builder: Any = defined_in(path).get(path.stem)
    if builder is None:
        raise ValueError(f"{path} does not define {path.stem}: it must define a function of that name, of the shape of "
                         "one example, the layer widths and the number of classes, that returns a torch.nn.Module")
    _refuse_other_arguments(builder)
    return builder  # type: ignore[no-any-return]


def build(name: str, hidden: Sequence[int], shape: Sequence[int], classes: int, seed: int, dtype: torch.dtype
          ) -> nn.Module:
    """Build the model called `name` for examples of `shape`, with PyTorch's initialisation drawn from `seed`.

    The global generator is left as it was. Raises what `find_model` raises, and `ValueError` for widths or a shape
    that do not fit, or a user's function that fails or returns no model.
    """
    builder = find_model(name)
    with torch.random.fork_rng(devices=[]), blaming_user_files():
        torch.manual_seed(key(seed, "model"))
        model = builder(shape, hidden, classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place_of(builder)}: {builder.__name__} returns {_shown(model)}: it must return the model, "
                         "a torch.nn.Module")
    return model.to(dtype)


def refuse_misfit(name: str, hidden: Sequence[int], classes: int, like: Tensor) -> None:
    """Raise `ValueError` if a model of the user's does not fit records like `like`, `[0, ...]` (`refuse_outputs`).

    Published models fit: their functions refuse what they do not take.
    """
    builder = find_model(name)
    if builder.__module__ != published.__name__:
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        fit.refuse_outputs(build(name, hidden, like.shape[1:], classes, 0, dtype), place_of(builder), like, classes)


def _refuse_other_arguments(builder: Any) -> None:
    """Raise `ValueError` for a user's function that cannot be called with shape, widths and classes."""
    try:
        inspect.signature(builder).bind((), (), 2)
    except TypeError as error:
        raise ValueError(f"{place_of(builder)}: {builder.__name__} is called with the shape of one example, the layer "
                         f"widths and the number of classes, but with these it fails: {error}; write "
                         f"def {builder.__name__}(shape, hidden, classes)") from None


def _shown(value: object) -> str:
    """Name what was returned in place of a model."""
    return "nothing" if value is None else f"a {type(value).__name__}"
