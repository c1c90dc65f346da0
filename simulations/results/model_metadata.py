"""What a saved model has with it, so that it can be used without the data and the settings of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedfair.datasets.encoding import Encoding
from fedfair.fairness.reject_option import RejectOption
from fedfair.models import published


class Description(BaseModel):
    """The kind of the model (see `fedfair.protocol.task.Task`), what goes into it, and what its outputs stand for.

    `shape` is that of one example. `groups` and `labels` are the names of groups and classes in the order of their
    numbers; `group_columns` are the columns of a table whose values make a row's group, empty where nobody named any.
    With a `threshold`, decisions hang on the group.
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

    def build(self, saved: Mapping[str, Tensor]) -> nn.Module:
        """The model with the numbers that were saved of it; raises `ValueError` if it is of a kind that is not known
        here, or has other numbers.
        """
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        model = published.build(self.model, self.hidden, torch.Size(self.shape), len(self.labels), 0, dtype)
        own = numbers(model)
        if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in saved.items()}:
            raise ValueError(f"the model {self.model!r} has other parameters here than those that were saved: restore "
                             "the file that defined it")
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(saved[name])
        return model


def numbers(model: nn.Module) -> dict[str, Tensor]:
    """A model's parameters and buffers by name, each once: what tells it from another of its kind."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
