"""Bands of a number, which make groups of it: "under 25", "25 to under 60", "60 and over"."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def band_names(ends: Sequence[float]) -> list[str]:
    """Return the names of the bands whose lower ends are `ends`, and of the first, which has none.

    Raises `ValueError` unless there are some and they rise.
    """
    if not len(ends) or any(not low < high for low, high in pairwise(ends)):
        raise ValueError(f"bands is {list(ends)}: give rising numbers, the lower ends of all bands but the first, for "
                         "example bands = [25, 60]")
    middle = [f"{low:g} to under {high:g}" for low, high in pairwise(ends)]
    return [f"under {ends[0]:g}", *middle, f"{ends[-1]:g} and over"]


def in_bands(numbers: pd.Series, ends: Sequence[float]) -> pd.Series:
    """Return the name of each number's band, as categories in rising order; a missing number stays missing.

    Raises `ValueError` if the values are no numbers, and as `band_names` does.
    """
    import pandas as pd  # here, since a node may need the names of bands alone

    names = band_names(ends)
    if not pd.api.types.is_numeric_dtype(numbers) or pd.api.types.is_bool_dtype(numbers):
        raise ValueError(f"bands are for numbers, but column {str(numbers.name)!r} holds others: leave bands out")
    positions = np.searchsorted(np.asarray(ends), numbers.to_numpy(dtype="float64"), side="right")
    kind = pd.CategoricalDtype(names, ordered=True)
    made = pd.Categorical.from_codes(np.where(numbers.isna(), -1, positions).tolist(), dtype=kind)
    return pd.Series(made.remove_unused_categories(), index=numbers.index, name=numbers.name)
