"""Handwritten digits, 8 x 8 pixels, that come with scikit-learn: 1,797 records and no download."""

from __future__ import annotations

import torch

from fedfair.datasets.grouped import GroupedDataset
from fedfair.registry import unknown

VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """Images `[n, 1, 8, 8]` in [0, 1]; the digit is label and group. Raises `ValueError` for another `group`."""
    if group not in (None, "digit"):
        raise unknown("protected attribute of digits", group, ("digit",))
    from sklearn.datasets import load_digits  # here: it takes half a second

    images, labels = load_digits(return_X_y=True)
    y = torch.tensor(labels, dtype=torch.long)
    x = torch.tensor(images, dtype=torch.float64).view(-1, 1, 8, 8) / 16
    return GroupedDataset(x=x, y=y, group=y, names=tuple(map(str, range(10))), classes=10)
