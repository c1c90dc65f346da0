"""Finding a model by its name, published or in a file of the user's, and building it from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from fedfair.mechanisms.randomness import key
from fedfair.models.published import MODELS, Builder
from fedfair.plugins.registry import unknown
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
    builder: Builder | None = defined_in(path).get(path.stem)
    if builder is None:
        raise ValueError(f"{path} does not define {path.stem}: it must define a function of that name, of the shape of "
                         "one example, the layer widths and the number of classes, that returns a torch.nn.Module")
    return builder


def build(name: str, hidden: Sequence[int], shape: Sequence[int], classes: int, seed: int, dtype: torch.dtype
          ) -> nn.Module:
    """Build the model called `name` for examples of `shape`, with PyTorch's initialisation drawn from `seed`.

    The global generator is left as it was. Raises what `find_model` raises, and `ValueError` for widths or a shape
    that do not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, "model"))
        return find_model(name)(shape, hidden, classes).to(dtype)
