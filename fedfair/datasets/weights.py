"""Weights of records, and of classes: by how much each record's loss is multiplied, before its gradient is clipped.

A rule that clips weighted gradients bounds what a record adds, whatever its weight, so that weights add nothing to the
sensitivity. A record's weight depends on that record and on the settings alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.grouped import GroupedDataset
from fedfair.plugins.registry import unknown

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1e6
"""The largest weight: coefficients of larger ones would leave the range in which single precision is exact enough."""


def weights_of(column: pd.Series) -> Tensor:
    """Return the weights of the records in a column, `[n]`, in double precision.

    Args:
        column: One number for each record.

    Raises:
        ValueError: If one of them is no number from 0 to `LARGEST`, or if all are 0.
    """
    import pandas as pd  # here, since a process that answers for other data does without

    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    strange = ~((values >= 0) & (values <= LARGEST))
    if strange.any():
        at = int(strange.argmax())
        raise ValueError(f"the weight column {str(column.name)!r} has {str(column.iloc[at])!r} in row "
                         f"{column.index[at] + 1}: a weight is a number from 0 to {LARGEST:,.0f}; correct it")
    if not values.any():
        raise ValueError(f"the weight column {str(column.name)!r} is 0 in every row: nothing would be trained")
    return torch.tensor(values)


def weighted(data: GroupedDataset, class_weights: Sequence[tuple[str, float]]) -> GroupedDataset:
    """Return the records with their weights multiplied by those of their classes, 1 for a class that is not named.

    Args:
        data: Records, with weights of their own or not.
        class_weights: Weight by the name of a class.

    Raises:
        ValueError: For an unknown class.
    """
    if not class_weights:
        return data
    by_class = torch.ones(data.classes, dtype=torch.float64)
    for name, weight in class_weights:
        if name not in data.labels:
            raise unknown("class of class_weights", name, data.labels)
        by_class[data.labels.index(name)] = weight
    factors = by_class[data.y]
    return replace(data, weight=data.weight * factors if len(data.weight) else factors)
