"""Finding a model by its name, published or in a file of the user's, and building it from a seed.

A model of the user's is tried on rows that are made up, before anything is trained: does it fit the records?

Of a model of `torch.compile`, what it wraps is trained, since gradients are taken example by example (`uncompiled`). A
compiled model calls the layers that it wraps, and shares their parameters; Dynamo marks these while it runs, as a layer
would that keeps something of its examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfair.mechanisms.randomness import key
from fedfair.models import published
from fedfair.models.published import MODELS, Builder
from fedfair.plugins.registry import unknown
from fedfair.plugins.user_files import (
    UserFileError,
    blaming_user_files,
    defined_in,
    file_name,
    place_of,
    sentence_of,
    user_file,
)

ROWS = 3
"""Rows that are made up: enough for an example to have one before and one behind it."""

_WRAPPED = "_orig_mod"  # of `torch._dynamo.eval_frame.OptimizedModule`, whose import takes a second
_IN_PLACE = "_compiled_call_impl"


def refuse_outputs(model: nn.Module, where: str, like: Tensor, classes: int) -> None:
    """Raise `ValueError` unless a model gives each example one number for each class, whatever is beside it.

    Args:
        model: The model, which is thrown away afterwards.
        where: File and line of the function that built it.
        like: No rows, of the shape and type of the records' features, `[0, ...]`.
        classes: Number of classes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shape = (ROWS, *like.shape[1:])
        x = (torch.randn(shape) if like.is_floating_point() else torch.randint(2, shape)).to(like.dtype)
    model.eval()
    output = _output(model, where, x)
    _refuse_shape(output, where, classes)
    if output.is_complex():
        raise ValueError(f"{where}: the model's outputs are complex, of the type {output.dtype}: return real logits, "
                         "for example their real parts")
    if output.isnan().any():
        raise ValueError(f"{where}: the model's outputs for made-up examples are no numbers (NaN), as of the logarithm "
                         "of a negative number or 0 / 0: let it give a number for every input")
    if not output.requires_grad:
        raise ValueError(f"{where}: the model's outputs, of the type {output.dtype}, do not depend on its parameters, "
                         "so that nothing can be trained: return the logits themselves, without argmax, detach() or "
                         "no_grad()")
    alone = torch.cat([_output(model, where, row) for row in torch.split(x, 1)])
    tolerance = torch.finfo(output.dtype).eps ** 0.5
    if alone.shape != output.shape or not torch.allclose(output, alone, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise ValueError(f"{where}: the model gives an example another output when it is alone in its batch: its "
                         "examples interact, so clipping one example's gradient bounds nothing; the first dimension is "
                         "the batch (batch_first=True for recurrent and attention layers)")


def _output(model: nn.Module, where: str, x: Tensor) -> Tensor:
    """Return what a model gives for made-up rows; raise `ValueError` for what is no tensor with a row for each."""
    try:
        output = model(x)
    except Exception as error:
        located = sentence_of(error)
        if located is not None:
            raise UserFileError(f"{located}; the model was given {len(x)} examples of the shape "
                                f"{list(x.shape[1:])}") from error
        raise UserFileError(f"{where}: the model cannot take {len(x)} examples of the shape {list(x.shape[1:])}: "
                            f"{str(error) or type(error).__name__}; correct its layers") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"{where}: the model returns a {type(output).__name__}: return one tensor of logits, "
                         "[examples, classes]" + (", for example its first part" if isinstance(output, tuple) else ""))
    if output.dim() == 0 or len(output) != len(x):
        raise ValueError(f"{where}: the model returns a tensor of the shape {list(output.shape)} for {len(x)} "
                         "examples: keep the examples apart along the first dimension")
    return output


def _refuse_shape(output: Tensor, where: str, classes: int) -> None:
    """Raise `ValueError` unless there is a number for each class."""
    if output.shape[1:] == (classes,):
        return
    found, needed = list(output.shape[1:]), f"there are {classes} classes"
    if output.shape[1:].numel() == 1 and classes == 2:
        raise ValueError(f"{where}: the model gives one score for an example, but {needed}: return two logits, "
                         "nn.Linear(..., classes), or put nn.ZeroPad1d((1, 0)) behind the score, as the model "
                         "binary_logistic does, so that the other class has the score 0")
    raise ValueError(f"{where}: the model gives {'numbers' if found else 'a number'} of the shape {found} for an "
                     f"example, but {needed}: return one logit for each, of the shape [{classes}]")


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
    # torch.manual_seed notes the stack for each kind of device, which takes longer than a small model's numbers.
    seeded = torch.default_generator.manual_seed if builder.__module__ == published.__name__ else torch.manual_seed
    with torch.random.fork_rng(devices=[]), blaming_user_files():
        seeded(key(seed, "model"))
        model = builder(shape, hidden, classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place_of(builder)}: {builder.__name__} returns {_shown(model)}: it must return the model, "
                         "a torch.nn.Module")
    if builder.__module__ != published.__name__:
        _refuse_unusable(model, place_of(builder))
        model = uncompiled(model)
    return model.to(dtype)


def _refuse_unusable(model: nn.Module, where: str) -> None:
    """Raise `ValueError` for a model that contains itself, or has parameters that are complex, or no numbers."""
    try:
        TopologicalSorter({id(layer): [*map(id, layer.children())] for layer in model.modules()}).prepare()
    except CycleError:
        raise ValueError(f"{where}: the model contains itself, as a layer of its own or of one of its layers: keep "
                         "only layers that lie below it as attributes") from None
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise ValueError(f"{where}: the parameter {name} of the model is complex, of the type {parameter.dtype}: "
                             "make it of real numbers")
        if not (parameter.is_meta or parameter.isfinite().all()):  # as where it is built to be counted
            raise ValueError(f"{where}: the parameter {name} of the model has values that are no finite numbers before "
                             "any training: initialise it with numbers")


def refuse_misfit(name: str, hidden: Sequence[int], classes: int, like: Tensor) -> None:
    """Raise `ValueError` if a model of the user's does not fit records like `like`, `[0, ...]` (`refuse_outputs`).

    Published models fit: their functions refuse what they do not take.
    """
    builder = find_model(name)
    if builder.__module__ != published.__name__:
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        refuse_outputs(build(name, hidden, like.shape[1:], classes, 0, dtype), place_of(builder), like, classes)


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


def uncompiled(model: nn.Module) -> nn.Module:
    """Return what a compiled model wraps, with the same parameters; any other model as it is.

    Args:
        model: The model.

    Raises:
        ValueError: If a layer of it is compiled by itself, or it was compiled in place, by `model.compile()`.

    Examples:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> uncompiled(torch.compile(model)) is uncompiled(model) is model
        True
    """
    wrapped = getattr(model, _WRAPPED, None) if type(model).__name__ == "OptimizedModule" else None
    plain = wrapped if isinstance(wrapped, nn.Module) else model
    for name, layer in plain.named_modules():
        if type(layer).__name__ == "OptimizedModule" or getattr(layer, _IN_PLACE, None) is not None:
            which = f"layer {name} of the model" if name else "model"
            raise ValueError(f"the {which} is compiled by torch.compile: leave that out, or compile the whole model by "
                             "torch.compile(model), which is trained as it is without")
    return plain
