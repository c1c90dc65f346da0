"""A table whose missing values are kept, put together of its chunks: categories as small integers, numbers in a file.

No value decides how another one is read, but in the column of the label, which is read as a whole. So it does not
matter where chunks end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from pandas.api.types import union_categoricals
from torch import Tensor

from fedfair.datasets.columns.convention import Reading
from fedfair.datasets.columns.quantities import numbers_among
from fedfair.datasets.columns.texts import marks_of
from fedfair.datasets.columns.tidy import (
    cells,
    column_numbers,
    declared_quantity,
    is_text,
    own_numbers,
    tidied_column,
    typed_numbers,
    with_columns,
)
from fedfair.datasets.features.encoder import kept
from fedfair.datasets.features.lazy_rows import NumberFile, plain
from fedfair.datasets.files.chunks import Chunks


class KeptTable(NamedTuple):
    """The rows of a table that have a label and a band.

    Attributes:
        frame: Their columns that are no features of numbers, indexed by the rows' places in the table.
        numbers: The other columns, each `[n]`, in a file until they are used; NaN where a number is missing.
        rows: Number of all rows of the table.
    """

    frame: pd.DataFrame
    numbers: dict[str, Tensor]
    rows: int

    def columns(self, names: Iterable[str]) -> Iterator[pd.Series]:
        """Yield some columns, one after another.

        Args:
            names: Their names.
        """
        for name in names:
            yield (self.frame[name] if name in self.frame else
                   pd.Series(plain(self.numbers[name]).numpy(), self.frame.index, name=name))


def kept_table(chunks: Chunks, reading: Reading, label: str, numbers: Collection[str], as_text: Collection[str] = (),
               without: Collection[str] = (), in_memory: Collection[str] = ()) -> KeptTable:
    """Return the rows that have a label and a band: NaN where a number is missing, and a category for other values.

    Args:
        chunks: The table.
        reading: How its cells are read.
        label: Column of the label.
        numbers: Columns of numbers; what is no finite number there is missing.
        as_text: Columns whose categories stay text.
        without: Columns that are not read.
        in_memory: Columns that are in the frame although they hold numbers.
    """
    banded = {name for name, _ in reading.bands}
    read = [name for name in chunks.names if name not in without]
    filed = [name for name in read if name in numbers and name not in {label, *banded, *in_memory}]
    pieces: dict[str, list[pd.Series]] = {name: [] for name in read if name not in filed}
    file = NumberFile(filed)
    for frame in chunks.frames():
        file.append({name: _number_column(frame[name], reading).to_numpy("float64") for name in filed})
        for name, own in pieces.items():
            own.append(_number_column(frame[name], reading) if name in banded or name in numbers else
                       frame[name] if name == label else _categories(frame[name], reading))
    columns = {}
    for name in [*pieces]:
        joined = _joined(pieces.pop(name))
        columns[name] = joined.astype("string") if name in as_text and _is_categorical(joined) else joined
    if label not in banded and label not in numbers:
        columns[label] = tidied_column(columns[label], reading)
    table = pd.DataFrame(columns, copy=False)
    there = _present(table, [label, *banded & {*read}])
    held = {name: file.column(name) for name in filed}
    if len(there) == len(table):
        return KeptTable(there, {**held}, len(table))
    places = torch.tensor(there.index.to_numpy("int64"))
    return KeptTable(there, {name: column.at(places) for name, column in held.items()}, len(table))


def _present(frame: pd.DataFrame, needed: list[str]) -> pd.DataFrame:
    """Return the rows in which no needed column is missing, with the categories that they have."""
    there = frame[needed].notna().all(axis=1)
    if bool(there.all()):
        return frame
    frame = frame[there]
    listed = [str(name) for name, column in frame.items() if _is_categorical(column)]
    return with_columns(frame, {name: frame[name].cat.remove_unused_categories() for name in listed})


def by_value(column: pd.Series, function: Callable[[pd.Series], pd.Series]) -> tuple[np.ndarray, pd.Series]:
    """Apply a function once to each different text of a column.

    Args:
        column: Column of text, `[n]`.
        function: From different texts, `[values]`, to as many results.

    Returns:
        The place of each row's text, `[n]`, and the results, `[values]`.
    """
    places, different = column.astype("string").factorize(use_na_sentinel=False)
    return places, function(pd.Series(different, name=column.name, dtype="string"))


def _number_column(column: pd.Series, reading: Reading) -> pd.Series:
    """Return the numbers of a column, NaN where there is none."""
    if not is_text(column):
        return _numbers(column, reading)
    places, found = by_value(column, lambda texts: _numbers(texts, reading))
    numbers = pd.Series(found.to_numpy()[places], name=column.name)
    if column.dtype != object:
        return numbers
    return numbers if reading.quantity(str(column.name)) else _numbers(own_numbers(column), reading).fillna(numbers)


def _numbers(column: pd.Series, reading: Reading) -> pd.Series:
    """Return the number of each value, NaN where there is none, or where it is of another quantity than the column."""
    if not is_text(column) and declared_quantity(column) != reading.quantity(str(column.name)):
        return pd.Series(np.nan, column.index, name=column.name)
    if declared_quantity(column):
        return typed_numbers(column)
    text = cells(column, reading)
    found = column if text is None else column_numbers(text, str(column.name), reading)
    numbers = pd.to_numeric(found, errors="coerce").to_numpy("float64", na_value=np.nan)
    marked = [] if reading.quantity(str(column.name)) else [*numbers_among(marks_of(str(column.name), reading))]
    return pd.Series(np.where(np.isfinite(numbers) & ~np.isin(numbers, marked), numbers, np.nan), name=column.name)


def _categories(column: pd.Series, reading: Reading) -> pd.Series:
    """Return a column with the category of each value."""
    if is_text(column):
        places, names = by_value(column, lambda texts: kept(texts, reading))
    else:
        places, names = np.arange(len(column)), kept(column, reading)
    codes, categories = names.factorize()
    return pd.Series(pd.Categorical.from_codes(codes[places], pd.Index(categories)), name=column.name)


def _joined(pieces: list[pd.Series]) -> pd.Series:
    """Return the pieces of a column as one."""
    if _is_categorical(pieces[0]) and len(pieces) > 1:
        return pd.Series(union_categoricals(pieces), name=pieces[0].name)
    return pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0].reset_index(drop=True)


def _is_categorical(column: pd.Series) -> bool:
    """Return whether a column holds places among categories."""
    return isinstance(column.dtype, pd.CategoricalDtype)
