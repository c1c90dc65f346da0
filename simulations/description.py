"""What a saved model has with it, so that it can be used without the data and the settings of its run."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from fedfair import models
from fedfair.datasets.encoding import Encoding
from fedfair.thresholds import RejectOption


class Description(BaseModel):
    """The kind of the model (see `fedfair.task.Task`), what goes into it, and what its outputs stand for.

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

    def build(self) -> nn.Module:
        """The model, with any weights; raises `ValueError` if it is of a kind that is not known here."""
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        return models.build(self.model, self.hidden, self.shape, len(self.labels), 0, dtype)
