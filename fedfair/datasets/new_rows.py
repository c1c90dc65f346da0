"""New rows of a table, prepared as those were that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedfair.datasets.columns import tidied
from fedfair.datasets.encoding import Encoding, Feature
from fedfair.datasets.table import whole_numbers
from fedfair.plugins.registry import unknown


def encode(frame: pd.DataFrame, encoding: Encoding) -> Tensor:
    """The rows of a table as features `[n, features]`, in double precision; columns without features are not read.

    Text is tidied as that of a whole file is. Raises `ValueError` if a column is not there, a value is missing or no
    number where one is needed, or the data set had no such category.
    """
    columns = list(dict.fromkeys(feature.column for feature in encoding.features))
    absent = [name for name in columns if name not in frame]
    if absent:
        raise ValueError(f"the rows have no column {', '.join(map(repr, absent))}: the model was trained on "
                         f"{', '.join(columns)}, and needs them all")
    read = {name: frame[name].reset_index(drop=True) for name in columns}
    neat = tidied(pd.DataFrame(read), encoding.decimal)
    for name in columns:
        if neat[name].isna().any():
            raise ValueError(f"column {name!r} has no value in row {int(neat[name].isna().argmax()) + 1}: fill it, or "
                             "leave the row out")
    one_hot = dict.fromkeys(feature.column for feature in encoding.features if feature.category is not None)
    texts = {name: _texts(read[name], neat[name], encoding.categories(name)) for name in one_hot}

    def made(feature: Feature) -> Tensor:
        """One feature of all rows, `[n]`."""
        if feature.category is None:
            return _number(neat[feature.column], feature)
        return torch.tensor((texts[feature.column] == feature.category).to_numpy(dtype="float64"))

    return torch.stack([made(feature) for feature in encoding.features], 1)


def group_names(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The name of each row's group, `[n]`, as the values in some columns make it; see
    `fedfair.datasets.grouped.crossed`.

    Raises `ValueError` if a column is not there.
    """
    for name in columns:
        if name not in frame:
            raise unknown("column", name, map(str, frame.columns))
    neat = tidied(frame[list(columns)])
    return [" & ".join(values) for values in zip(*(whole_numbers(neat[name]).astype(str) for name in columns),
                                                 strict=True)]


def _texts(column: pd.Series, neat: pd.Series, known: tuple[str, ...]) -> pd.Series:
    """The categories of a column, as text: one of the `known` that it is, that it is once tidied, or whose number it
    is, however that is written.
    """
    texts, stripped = column.astype(str), neat.astype(str)
    numbers = pd.to_numeric(pd.Series(known), errors="coerce")
    by_number = {number: text for number, text in zip(numbers, known, strict=True) if (numbers == number).sum() == 1}
    found = pd.to_numeric(neat, errors="coerce").map(by_number)
    found = texts.where(texts.isin(known), stripped.where(stripped.isin(known), found))
    if found.isna().any():
        row = int(found.isna().argmax())
        raise unknown(f"category of column {str(column.name)!r}, in row {row + 1},", stripped[row], known)
    return found


def _number(column: pd.Series, feature: Feature) -> Tensor:
    """The numbers of a column, scaled as they were for the training."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype="float64")
    strange = ~np.isfinite(numbers)
    if strange.any():
        row = int(strange.argmax())
        raise ValueError(f"column {feature.column!r} has {str(column.iloc[row])!r} in row {row + 1}, where the model "
                         "needs a finite number: correct it, or leave the row out")
    values = torch.tensor(numbers)
    return feature.scaling.of(values) if feature.scaling else values
