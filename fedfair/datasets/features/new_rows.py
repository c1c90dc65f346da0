"""New rows for a trained model: each cell is read as training read it, or refused by row and column.

Every cell stands for itself: no row decides how another one is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_integer_dtype, is_scalar

from fedfair.datasets.columns.cell import (
    Column,
    Doubt,
    counted_as_missing,
    counted_as_other,
    refuse_absent,
    repeated,
    spelled,
    truth_values,
    unreadable,
    without_values,
)
from fedfair.datasets.columns.convention import MISSING
from fedfair.datasets.columns.quantities import numbers_among
from fedfair.datasets.columns.texts import AMONG_NUMBERS, marks_of
from fedfair.datasets.columns.tidy import declared_quantity
from fedfair.datasets.features.encoder import category_positions
from fedfair.datasets.features.encoding import OTHER, Encoding

Unreadable = Literal["refuse", "missing"]
"""What a cell that cannot be read is: refused, or counted as missing, which is said."""


def columns_of(encoding: Encoding) -> tuple[Column, ...]:
    """Return how the cells of each column are read that has features, in the features' order.

    Args:
        encoding: How columns become features.
    """
    reading, made = encoding.reading, []
    for name in dict.fromkeys(feature.column for feature in encoding.features):
        categories = encoding.categories(name)
        known = None if not categories or name in dict(reading.bands) else categories
        other = OTHER if OTHER in categories else None
        made.append(Column(name, known, other, MISSING if MISSING in categories else other,
                           marks_of(name, reading), AMONG_NUMBERS, reading.mark(name), reading.same_capitals,
                           reading.quantity(name)))
    return tuple(made)


def read_new(frame: pd.DataFrame, encoding: Encoding, unread: Unreadable = "refuse") -> tuple[pd.DataFrame, list[str]]:
    """Return the columns of new rows that a model needs, which `encode` takes as they are, and what is to be said.

    Args:
        frame: Rows with the columns that the model was trained on; others are not looked at.
        encoding: How columns become features.
        unread: What becomes of a cell in a column of numbers that is none, where the model knows missing values.

    Returns:
        The rows, and a sentence for each column with values that count as missing or as another category.

    Raises:
        ValueError: If a column is absent, or a cell that must be a number is none; the message says which.
    """
    columns = columns_of(encoding)
    names = [spelled(str(name)) for name in frame]  # as the training's names
    refuse_absent(names, [column.name for column in columns])
    needed = {column.name for column in columns}
    twice = repeated(name for name in names if name in needed)
    if twice is not None:
        raise ValueError(f"the rows have column {twice!r} more than once: give each column a name of its own")
    frame = frame.set_axis(names, axis=1)
    made: dict[str, pd.Series] = {}
    said: list[str] = []
    refused: list[str] = []
    for column in columns:
        cells = frame[column.name].reset_index(drop=True)
        of_unit = column.quantity or (column.known is None and declared_quantity(cells))
        if of_unit and not encoding.reading.keeps_missing:
            made[column.name], doubts = _numbers(cells, column)
            refused += [unreadable(column, doubts)] * bool(doubts)
        elif not encoding.reading.keeps_missing:
            made[column.name], doubts = cells if column.known is None else _as_known(cells, column), []
            if column.known is not None and column.unknown is not None:
                doubts = _others(made[column.name], column, encoding)
            said += [counted_as_other(column, doubts, len(frame))] * bool(doubts)
        elif column.known is None:
            made[column.name], doubts = _numbers(cells, column)
            if doubts and unread == "refuse":
                refused.append(unreadable(column, doubts))
            said += [counted_as_missing(column, doubts, len(frame))] * bool(doubts)
        else:
            made[column.name], doubts = _categories(cells, column)
            said += [counted_as_other(column, doubts, len(frame))] * bool(doubts)
    if refused:
        raise ValueError("; ".join(refused))
    if encoding.reading.keeps_missing and columns:
        empty = np.logical_and.reduce([_each(frame[column.name], column.is_missing) for column in columns])
        said += [without_values((np.flatnonzero(empty) + 1).tolist(), len(frame))] * bool(empty.any())
    return pd.DataFrame(made, index=range(len(frame))), said


def _numbers(cells: pd.Series, column: Column) -> tuple[pd.Series, list[Doubt]]:
    """Return the numbers of a column, NaN where one is missing, and the cells that are none."""
    if not column.quantity and (is_float_dtype(cells) or is_integer_dtype(cells)):
        numbers = cells.to_numpy("float64", na_value=np.nan)
        strange, marked = np.isinf(numbers), np.isin(numbers, [*numbers_among(column.missing)])
        return pd.Series(np.where(strange | marked, np.nan, numbers)), _doubts(cells, strange)
    found = _each(cells, column.number)
    strange = np.array([number is None for number in found], dtype=bool)
    return pd.Series([np.nan if number is None else number for number in found], dtype="float64"), _doubts(cells,
                                                                                                         strange)


def _categories(cells: pd.Series, column: Column) -> tuple[pd.Series, list[Doubt]]:
    """Return the categories of a column as the model knows them, and the cells that are none of them."""
    found = _each(cells, column.category)
    strange = np.array([name is None for name in found], dtype=bool)
    names = [column.unknown if name is None else name for name in found]
    return pd.Series(names, dtype="string"), _doubts(cells, strange)


def _as_known(cells: pd.Series, column: Column) -> pd.Series:
    """Return a column with its truth values written as the model knows them, and all else as it is."""
    known = truth_values(column.known or ())
    if not known:
        return cells

    def written(cell: Any) -> Any:
        """Return a cell as the model knows it, or as it is."""
        text = column.text(cell)
        return cell if text is None or text in (column.known or ()) else known.get(text.lower(), cell)

    return pd.Series(_each(cells, written), name=cells.name, dtype=object).infer_objects()


def _others(cells: pd.Series, column: Column, encoding: Encoding) -> list[Doubt]:
    """Return the cells that count as "other" without being missing or written so."""
    positions = category_positions(cells.rename(column.name), encoding)
    is_other = positions == encoding.categories(column.name).index(OTHER)
    texts = np.array([text not in (None, OTHER) for text in _each(cells, column.text)], dtype=bool)
    return _doubts(cells, is_other & texts)


def _each(cells: pd.Series, meaning: Callable[[Any], Any]) -> list[Any]:
    """Return what each cell means, `[n]`; equal cells of different types, such as 1 and True, are told apart.

    A list, or what else is no single value, is what it is written as, which no column knows.
    """
    found: dict[tuple[type, Any], Any] = {}
    meant = []
    for cell, missing in zip(cells.tolist(), cells.isna().tolist(), strict=True):
        value = None if missing else bool(cell) if isinstance(cell, np.bool_) else cell
        value = value if is_scalar(value) else str(value)
        key = (type(value), value)
        if key not in found:
            found[key] = meaning(value)
        meant.append(found[key])
    return meant


def _doubts(cells: pd.Series, strange: np.ndarray) -> list[Doubt]:
    """Return the cells at some places, `[n]`."""
    places = np.flatnonzero(strange)
    return [Doubt(int(place) + 1, cell) for place, cell in zip(places, cells.iloc[places], strict=True)]
