"""Tables to tensors: numeric columns as they are, the others one-hot, one column as label and one as group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fedfair.datasets.grouped import GroupedDataset
from fedfair.registry import unknown


def from_frame(frame: pd.DataFrame, label: str, group: str, numeric: Sequence[str] = ()) -> GroupedDataset:
    """Encode a complete table.

    The columns `numeric` come first, unscaled and marked for standardisation; every other column but the label is
    one-hot, the group's own included. Labels and groups are numbered in sorted order.
    Raises `ValueError` for missing or infinite values, an unknown column, or a label or group with a single value.
    """
    for column in (label, group, *numeric):
        if column not in frame:
            raise unknown("column", column, map(str, frame.columns))
    missing = [str(c) for c in frame.columns[frame.isna().any()]]
    if missing:
        raise ValueError(f"the table has missing values in {', '.join(missing)}: fill them or drop those rows")
    infinite = [column for column in numeric if not np.isfinite(frame[column].to_numpy(dtype="float64")).all()]
    if infinite:
        raise ValueError(f"the table has infinite values in {', '.join(infinite)}: correct or drop those rows")
    labels, groups = (pd.Categorical(frame[column]) for column in (label, group))
    for column, values in ((label, labels), (group, groups)):
        if len(values.categories) < 2:
            raise ValueError(f"column {column!r} has the single value {', '.join(map(str, values.categories))!r}: "
                             "there must be at least two to compare")
    kinds = frame.drop(columns=[label, *numeric]).astype(str)
    encoded = pd.concat([frame[list(numeric)].astype("float64"), pd.get_dummies(kinds, dtype="float64")], axis=1)
    return GroupedDataset(
        x=torch.tensor(encoded.to_numpy(), dtype=torch.float64),
        y=torch.tensor(labels.codes.astype("int64")),
        group=torch.tensor(groups.codes.astype("int64")),
        names=tuple(map(str, groups.categories)),
        classes=len(labels.categories),
        numeric=tuple(range(len(numeric))),
    )


def from_csv(path: Path, label: str, group: str) -> GroupedDataset:
    """Read a user's own file: columns of numbers are numeric (unless they hold the group), the others categories.

    Raises `FileNotFoundError` or `ValueError` with one sentence saying what is wrong with the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        frame = pd.read_csv(path, skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a complete CSV file ({str(error).strip()}): check that it was copied whole"
                         ) from error
    numeric = [c for c in frame.select_dtypes("number").columns if c not in (label, group)]
    return from_frame(frame, label, group, numeric)
