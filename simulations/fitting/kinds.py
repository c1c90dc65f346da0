"""Which columns of a table hold numbers, and with which decimal mark, from noisy counts: the first release of a fit.

A cell of a record is a number, a number that only a dot before decimals explains, one that only a comma explains, a
code with leading zeros, another text, or empty. A record adds 1 to one count of each of m columns, and takes 1 from
that of empty rows where it stands in place of one, so it moves all of them by at most sqrt(m + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from torch import Tensor

from fedfair.datasets.columns.convention import Decimal, Reading
from fedfair.datasets.columns.tidy import cells, column_numbers, is_text, own_numbers
from fedfair.datasets.features.kept_table import by_value
from fedfair.datasets.files.chunks import Chunks
from fedfair.mechanisms.noise import NoiseName, add_noise
from fedfair.mechanisms.randomness import Source

_MOSTLY = 0.8  # of a column's values are numbers: then it holds numbers
_CODE = r"[+-]?0\d+"  # a number does not start with a 0 before other digits
_COUNTS = 5  # of cells: numbers, those by dot, those by comma, codes, other texts
_TOLD = 4.0  # deviations of the noise: as many codes are no accident of it
_EITHER = r"([^.]*[^.\d])?[1-9]\d{0,2}(\.\d{3})+([^.\d][^.]*)?"  # a dot that may stand between thousands


class Kinds(NamedTuple):
    """What noisy counts tell.

    Attributes:
        numbers: Columns that hold numbers; all others hold categories.
        decimal: Decimal mark of the table.
        unreadable: About how many rows have no value, as those that cannot be read; 0 if the noise may be all of it.
    """

    numbers: tuple[str, ...]
    decimal: Decimal
    unreadable: int = 0


class Counts(NamedTuple):
    """What the cells of a table are, counted exactly: nothing of it may leave the machine.

    Attributes:
        records: Number of rows.
        cells: By column the cells with a number, with one that needs a dot or a comma, with a code, and with another
            text; then the number of rows without any value, and zeros: `[columns + 1, 5]`.
    """

    records: int
    cells: Tensor


def count(chunks: Chunks, columns: Sequence[str], reading: Reading, may_have_commas: bool) -> Counts:
    """Count the rows and the cells of a table.

    Args:
        chunks: The table.
        columns: Columns that nothing is known of.
        reading: How cells are read, with a dot before decimals.
        may_have_commas: Whether the decimal mark is to be found; else it is that of the reading.
    """
    records, total = 0, torch.zeros(len(columns) + 1, _COUNTS, dtype=torch.float64)
    for frame in chunks.frames():
        records += len(frame)
        total[-1, 0] += int((frame.isna() | (frame == "")).all(axis=1).sum())
        for row, name in enumerate(columns):
            total[row] += torch.tensor(_cells(frame[name], reading, may_have_commas), dtype=torch.float64)
    return Counts(records, total)


def kinds(exact: Tensor, columns: Sequence[str], reading: Reading, may_have_commas: bool, multiplier: float,
          noise: NoiseName, draws: Source) -> Kinds:
    """Return what noisy counts of cells tell of a table.

    Args:
        exact: The counts, `[columns + 1, 5]`; a row changes one of each column, or the last.
        columns: Columns that nothing is known of, at least one.
        reading: How cells are read, with a dot before decimals.
        may_have_commas: Whether the decimal mark is to be found; else it is that of the reading.
        multiplier: Noise multiplier of the release.
        noise: How noise is sampled.
        draws: Where it comes from.
    """
    deviation = multiplier * math.sqrt(len(columns) + 1)
    *of_columns, empty = add_noise(noise, {"kinds": exact}, deviation, draws)["kinds"]
    counts = torch.stack(of_columns)
    by_dot, by_comma = counts[:, 1].sum(), counts[:, 2].sum()
    comma = may_have_commas and bool(by_comma > by_dot)
    numbers = counts[:, 0] + (counts[:, 2] if comma else counts[:, 1])
    codes = counts[:, 3]
    texts = codes + counts[:, 4] + (counts[:, 1] if comma else counts[:, 2])
    are_numbers = (numbers > _MOSTLY * (numbers + texts)) & (codes <= _TOLD * deviation)
    found = tuple(name for name, is_number in zip(columns, are_numbers, strict=True) if is_number)
    unreadable = round(float(empty[0])) if empty[0] > _TOLD * deviation else 0
    return Kinds(found, "," if comma else reading.decimal, unreadable)


def _cells(column: pd.Series, reading: Reading, may_have_commas: bool) -> tuple[int, ...]:
    """Count the cells with a number, with one that needs a dot or a comma, with a code, and with another text."""
    if not is_text(column):
        known = int(column.notna().sum())
        return (known, 0, 0, 0, 0) if is_numeric_dtype(column) and not is_bool_dtype(column) else (0, 0, 0, 0, known)
    numbers = pd.Series(False, column.index)
    if column.dtype == object:
        numbers = own_numbers(column).notna() & ~column.map(lambda cell: isinstance(cell, bool))
    places, found = by_value(column[~numbers], lambda texts: _kinds_of(texts, reading, may_have_commas))
    counts = np.bincount(found.to_numpy()[places], minlength=_COUNTS + 1)[:_COUNTS]
    counts[0] += int(numbers.sum())
    return tuple(counts.tolist())


def _kinds_of(texts: pd.Series, reading: Reading, may_have_commas: bool) -> pd.Series:
    """Return what each of some texts is: the place of its count, and the next one for an empty text."""
    text, name = cells(texts, reading.missing), str(texts.name)
    assert text is not None
    known, coded = text.notna().to_numpy(), _fits(text, _CODE)
    numbers = column_numbers(text, name, reading).notna().to_numpy() & ~coded
    found = np.select([~known, numbers, coded], [_COUNTS, 0, 3], 4)
    if may_have_commas:
        dotted = numbers & text.str.contains(".", regex=False).fillna(False).to_numpy(bool)
        found[dotted & ~_fits(text, _EITHER)] = 1
        by_comma = column_numbers(text, name, reading._replace(decimal=",")).notna().to_numpy()
        found[known & ~numbers & text.str.contains(",", regex=False).fillna(False).to_numpy(bool) & by_comma] = 2
    return pd.Series(found)


def _fits(text: pd.Series, pattern: str) -> NDArray[np.bool_]:
    """Return which texts a pattern describes as a whole, `[n]`."""
    return text.str.fullmatch(pattern).fillna(False).to_numpy(bool)
