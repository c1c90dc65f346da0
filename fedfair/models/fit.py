"""Whether a model of the user's fits the records: it is tried on rows that are made up, before anything is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfair.plugins.user_errors import UserFileError, sentence_of

ROWS = 3
"""Rows that are made up: enough for an example to have one before and one behind it."""


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
