"""One encoder for tables: learned from the rows that a model is trained on, applied to them and to new rows alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.datasets.columns.cell import by_number, folded
from fedfair.datasets.columns.convention import MISSING, PLAIN, Reading, in_bands
from fedfair.datasets.columns.quantities import written_number
from fedfair.datasets.columns.tidy import cells, column_numbers, named, tidied_column
from fedfair.datasets.features.cells import Cells, Column, Held
from fedfair.datasets.features.encoding import OTHER, Encoding, Feature
from fedfair.datasets.names import value_name
from fedfair.plugins.registry import unknown


def learn(frame: pd.DataFrame, numeric: Sequence[str], reading: Reading = PLAIN) -> Encoding:
    """Return how the columns of a complete table become features.

    The columns `numeric`, which the table need not have, come first, unscaled. Every other column gets a feature for
    each of its categories, which are its values as text, sorted. `reading` says how its cells were read.
    """
    features = [Feature(name) for name in numeric]
    for name, column in frame.drop(columns=list(numeric), errors="ignore").items():
        categories = sorted(_different(_banded(column, reading)))
        features += [Feature(str(name), category) for category in categories]
    return Encoding(tuple(features), reading=reading)


def encode(frame: pd.DataFrame, encoding: Encoding) -> Tensor:
    """Return the rows of a table as features `[n, features]`, in double precision; columns without features are unread.

    Text need not be tidied. Raises `ValueError` if a column is absent, a value is missing, a value that must be a
    number is none, or a category is not one that the encoding knows.
    """
    columns = list(dict.fromkeys(feature.column for feature in encoding.features))
    absent = [name for name in columns if name not in frame]
    if absent:
        raise ValueError(f"the rows have no column {', '.join(map(repr, absent))}: the model was trained on "
                         f"{', '.join(columns)}, and needs them all")
    one_hot = {feature.column for feature in encoding.features if feature.category is not None}
    values: dict[Feature, Tensor] = {}
    for name in columns:
        column = frame[name].reset_index(drop=True)
        if name in one_hot:
            places = category_positions(column, encoding)
            values |= {Feature(name, category): torch.from_numpy(places == number).double()
                       for number, category in enumerate(encoding.categories(name))}
        else:
            values[Feature(name)] = numbers_of(column, encoding.reading)
    made = torch.stack([feature.of(values[feature._replace(scaling=None, bin=None, missing=False)])
                        for feature in encoding.features], 1)
    return made if encoding.bounding is None else encoding.bounding.of(made)


def cells_of(frame: pd.DataFrame, encoding: Encoding, numbers: Mapping[str, Tensor]) -> Cells:
    """Return the rows of a table as `encode` does, without making the features yet.

    Args:
        frame: Table that the encoding was learned from, with rows that are numbered from 0.
        encoding: How its columns become features.
        numbers: The columns, each `[n]`, that were read as numbers already.
    """
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(feature.column for feature in encoding.features):
        known = encoding.categories(name)
        columns[name] = (Column(_places(frame[name], encoding), known) if known else
                         Column(numbers[name] if name in numbers else numbers_of(frame[name], encoding.reading)))
    return Cells.of(Held(columns, encoding))


def _different(column: pd.Series) -> Iterable[str]:
    """Return the different values of a column as text."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.categories.astype(str)
    return column.astype(str).unique()


def _places(column: pd.Series, encoding: Encoding) -> Tensor:
    """Return the place of each value among the categories of its column, `[n]`, as small integers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        of_each = category_positions(pd.Series(column.cat.categories, name=column.name), encoding)
        places = of_each[column.cat.codes.to_numpy()]
    else:
        places = category_positions(column, encoding)
    known = len(encoding.categories(str(column.name)))
    return torch.from_numpy(places.astype("int8" if known < 2**7 else "int16" if known < 2**15 else "int32"))


def _banded(column: pd.Series, reading: Reading) -> pd.Series:
    """Return a protected number in its bands, and any other column as it is."""
    ends = dict(reading.bands).get(str(column.name))
    return column if ends is None else in_bands(tidied_column(column, reading), ends).astype("string")


def category_positions(column: pd.Series, encoding: Encoding) -> NDArray[np.int64]:
    """Return the position of each value of a column among its categories, `[n]`; -1 for one that is none of them.

    Args:
        column: Column with rows that are numbered from 0.
        encoding: How columns become features.

    Raises:
        ValueError: For a row with none of the categories, unless they are listed without looking at the records. Where
            "other" is listed, a missing value is that too.
    """
    name, reading = str(column.name), encoding.reading
    known, listed = encoding.categories(name), name in encoding.listed
    column = _banded(column, reading)
    if reading.keeps_missing:
        column = kept(column, reading)
    categories, texts = pd.Index(known), column.astype(str)
    positions = np.where(column.isna(), -1, categories.get_indexer(pd.Index(texts)))
    left = positions < 0
    if left.any():  # tidying takes time, and rows of the training have been tidied
        tidy = tidied_column(column, reading)
        goes_on = listed and OTHER in known
        _refuse_missing(tidy.isna() & left & (not goes_on))
        for meaning in _meanings(texts[left], tidy.astype(str)[left], known, reading):
            found = categories.get_indexer(pd.Index(meaning))
            positions[left] = np.where(positions[left] < 0, found, positions[left])
        if goes_on:
            positions = np.where(positions < 0, known.index(OTHER), positions)
        if (positions < 0).any() and not listed:
            row = int((positions < 0).argmax())
            raise unknown(f"category of column {name!r}, in row {row + 1},", str(tidy[row]), known)
    return positions


def _meanings(texts: pd.Series, tidy: pd.Series, known: tuple[str, ...], reading: Reading) -> Iterator[pd.Series]:
    """Yield what values may mean, as text: the values without spaces around them, the tidied values, the only
    categories that write the same numbers, and those that differ by capitals if these do not matter.
    """
    yield texts.str.strip()
    yield tidy
    different = tidy.dropna().unique()  # what is read one by one
    only = {number: names[0] for number, names in by_number(known).items() if len(names) == 1}
    yield tidy.map({text: only.get(written_number(text)) for text in different})
    if reading.same_capitals:
        by_letters = {folded(text): text for text in known}
        yield tidy.map({text: by_letters.get(folded(text)) for text in different})


def kept(column: pd.Series, reading: Reading) -> pd.Series:
    """Return a column of categories in which a missing value is one of them; each value is named by itself alone."""
    text = cells(column, reading)
    if text is not None:
        return named(text, reading).fillna(MISSING)
    names = {value: _name(value) for value in column.dropna().unique()}
    return column.map(names).astype("string").where(tidied_column(column, reading).notna()).fillna(MISSING)


def _name(value: object) -> str:
    """Return the name of a number, a truth value or a moment, of which midnight is a day."""
    return str(value.date()) if isinstance(value, pd.Timestamp) and value == value.normalize() else value_name(value)


def numbers_of(column: pd.Series, reading: Reading) -> Tensor:
    """Return the numbers of a column, `[n]`; where missing values are kept, NaN for what is no finite number.

    Args:
        column: Column.
        reading: How its cells are read.

    Raises:
        ValueError: For a value that is missing, infinite or no number, unless missing values are kept.
    """
    text = cells(column, reading)
    if reading.keeps_missing:
        found = column if text is None else column_numbers(text, str(column.name), reading)
        numbers = pd.to_numeric(found, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
        return torch.from_numpy(np.where(np.isfinite(numbers), numbers, np.nan))
    tidy = tidied_column(column, reading)
    _refuse_missing(tidy.isna())
    found = tidy if text is None else column_numbers(text, str(column.name), reading)
    numbers = pd.to_numeric(found, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    strange = ~np.isfinite(numbers)
    if strange.any():
        row = int(strange.argmax())
        raise ValueError(f"column {str(column.name)!r} has {str(tidy.iloc[row])!r} in row {row + 1}, where the model "
                         "needs a finite number, written as in its training: correct it, or leave the row out")
    return torch.tensor(numbers)


def _refuse_missing(missing: pd.Series) -> None:
    """Raise `ValueError` if a column has rows with `missing` values."""
    if missing.any():
        raise ValueError(f"column {str(missing.name)!r} has no value in row {int(missing.argmax()) + 1}: fill it, or "
                         "leave the row out")
