"""What is saved with a model, so that it can be used without the data and settings of its run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from fedfair.datasets.features.encoding import Encoding
from fedfair.fairness.reject_option import RejectOption
from fedfair.models import find
from simulations.files.saved_files import other_shape, saved_weights


class Description(BaseModel):
    """Kind of the model (see `fedfair.protocol.task.Task`), its input, and the meaning of its outputs.

    `shape` is that of one example. `groups` and `labels` are the names of groups and classes in the order of their
    numbers; `group_columns` are the columns of a table whose values make a row's group, empty if none were named. With
    a `threshold`, decisions depend on the group. `attributes_used` says of each sensitive attribute that is a column
    whether the model has it as a feature; empty for models saved by earlier versions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    hidden: tuple[int, ...]
    dtype: Literal["float32", "float64"]
    shape: tuple[int, ...]
    pixels: tuple[float, float]
    encoding: Encoding
    groups: tuple[str, ...]
    group_columns: tuple[str, ...]
    labels: tuple[str, ...]
    threshold: RejectOption | None
    attributes_used: dict[str, bool] = {}

    def build(self, saved: Mapping[str, Tensor]) -> nn.Module:
        """Build the model from its saved numbers; raise `ValueError` if its kind is unknown or they do not fit."""
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        model = find.build(self.model, self.hidden, torch.Size(self.shape), len(self.labels), 0, dtype)
        built = numbers(model)
        if _shapes(built) != _shapes(saved):
            raise ValueError(f"the model {self.model!r} has other parameters here than those that were saved: restore "
                             "the file that defined it")
        with torch.no_grad():
            for name, value in built.items():
                value.copy_(saved[name])
        return model


def descriptions(file: Path) -> dict[str, Description]:
    """Return the descriptions in a file of saved models, by run."""
    with saved_weights(file) as saved:
        texts: dict[str, str] = saved.metadata() or {}
    return {run: described(text, file) for run, text in texts.items()}


def described(text: str, file: Path) -> Description:
    """Read a description of a file; raise `ValueError` with the file's name if it is none."""
    try:
        return Description.model_validate_json(text)
    except ValidationError as error:
        raise other_shape(file, error) from None


def numbers(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by name, each once: what distinguishes it from others of its kind."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _shapes(values: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shape of each tensor."""
    return {name: value.shape for name, value in values.items()}
