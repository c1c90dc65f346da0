"""Handwritten digits, 8 x 8 pixels, that come with scikit-learn: 1,797 records and no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedfair.datasets.grouped import GroupedDataset
from fedfair.plugins.registry import unknown

VARIANTS: dict[str, dict[str, int]] = {}
_FILE = "datasets/data/digits.csv.gz"


def load(group: str | None = None) -> GroupedDataset:
    """Load images `[n, 1, 8, 8]` in [0, 1]; the digit is label and group. Raises `ValueError` for another `group`."""
    if group not in (None, "digit"):
        raise unknown("protected attribute of digits", group, ("digit",))
    rows = torch.from_numpy(_rows())
    x, y = rows[:, :-1].view(-1, 1, 8, 8) / 16, rows[:, -1].long()
    return GroupedDataset(x=x, y=y, group=y, names=tuple(map(str, range(10))), classes=10)


def _rows() -> npt.NDArray[np.float64]:
    """Read pixels, 0 to 16, and the digit, `[1797, 65]`, from the file that `sklearn.datasets.load_digits` reads.

    Importing scikit-learn takes over a second, a quarter of the time in which a process that trains on digits starts,
    and Flower's SuperNodes start a process for every message. If the file is not found, scikit-learn is imported.
    """
    spec = find_spec("sklearn")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(package, _FILE)).is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    return np.column_stack(load_digits(return_X_y=True))
