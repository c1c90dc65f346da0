"""Tidying a raw table: names spelled in one way, missing values as such, numbers where a whole column holds numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd
from pandas.api.types import (
    is_bool_dtype,
    is_datetime64_any_dtype,
    is_float_dtype,
    is_numeric_dtype,
    is_timedelta64_dtype,
)

from fedfair.datasets.columns.cell import folded
from fedfair.datasets.columns.convention import ALL, ANY_SIGN, PLAIN, Asked, Quantity, Reading
from fedfair.datasets.columns.quantities import DAY, is_mark, number_of, numbers_among, quantity_of_text
from fedfair.datasets.columns.texts import all_spelled, marks_of, same_capitals, without_words
from fedfair.datasets.columns.written_numbers import are_codes, common_sign, decimal_marks, numbers


def with_columns(frame: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with some columns replaced or added, whatever their names: `DataFrame.assign` takes no "self".

    Args:
        frame: The table, which stays as it is.
        columns: Columns by name.

    Examples:
        >>> with_columns(pd.DataFrame({"self": [1], "x": [2]}), {"self": [3]}).to_dict("list")
        {'self': [3], 'x': [2]}
    """
    made = frame.copy(deep=False)
    for name, values in columns.items():
        made[name] = values
    return made


def reading_of(frame: pd.DataFrame, asked: Asked, separator: str | None = None, names: Collection[str | None] = ()
               ) -> Reading:
    """Return how the cells of a table are read: one convention for all its columns.

    Args:
        frame: Table as it was read from a file.
        asked: What the user says.
        separator: What separates values in the file; None if there is no file of text.
        names: Columns whose values are names, as those of label and group are, even if they are dates.

    Raises:
        ValueError: If columns contradict each other, or numbers may be read in two ways; the message says which setting
            mends it.
    """
    as_asked = Reading(missing=tuple(asked.missing_marks or ()), answers=asked.answers)
    texts = {str(name): text for name, column in frame.items()
             if (text := cells(column, as_asked)) is not None and name not in asked.categorical and not are_codes(text)}
    decimal, exceptions = decimal_marks(texts, asked, separator)
    signs = {name: common_sign(text) for name, text in texts.items()}
    reading = Reading(decimal, exceptions, tuple((name, sign) for name, sign in signs.items() if sign),
                      as_asked.missing, asked.capitals == "same", asked.categorical, asked.numeric,
                      answers=asked.answers)
    return reading._replace(quantities=_quantities(frame, texts, asked, names, _percentages(texts, reading)))


def _percentages(texts: Mapping[str, pd.Series], reading: Reading) -> list[str]:
    """Return the columns in which each text is a number with a sign of per cent, or stands for a missing one."""
    return [name for name, sign in reading.signs if sign in ("%", "‰")
            and bool((column_numbers(texts[name], name, reading).notna() == without_words(texts[name]).notna()).all())]


def _quantities(frame: pd.DataFrame, texts: Mapping[str, pd.Series], asked: Asked, names: Collection[str | None],
                percentages: Sequence[str]) -> tuple[tuple[str, Quantity], ...]:
    """Return the columns of durations, times or percentages, as their types say or all texts write, and those that the
    user says.

    Dates are quantities only where the user says so: an age or a date may be meant.
    """
    found: dict[str, Any] = {str(name): declared_quantity(column) for name, column in frame.items()
                             if name not in asked.categorical}
    found |= {name: quantity for name, text in texts.items() if (quantity := common_quantity(without_words(text)))}
    found |= dict.fromkeys(percentages, "percentage")
    taken = {name: quantity for name, quantity in found.items()
             if quantity in ("duration", "time", "percentage") and name not in names}
    return tuple({**taken, **dict(asked.quantities)}.items())


def declared_quantity(column: pd.Series) -> Quantity | Literal[""]:
    """Return the quantity that the type of a column declares: "date" of dates and moments, "duration", or ""."""
    return "date" if is_datetime64_any_dtype(column) else "duration" if is_timedelta64_dtype(column) else ""


def common_quantity(texts: pd.Series) -> str:
    """Return the quantity that all texts of a column write, "" if there is none; missing texts are not looked at."""
    quantity = ""
    for place, text in enumerate(texts.dropna().unique()):
        own = quantity_of_text(text)
        if not own or (place and own != quantity):
            return ""
        quantity = own
    return quantity


def are_iso_dates(known: pd.Series) -> bool:
    """Return whether all texts of a column are dates as programs write them."""
    return not is_numeric_dtype(known) and common_quantity(known.astype("string")) == "date"


def reading_of_declared(frame: pd.DataFrame, asked: Asked, separator: str | None = None) -> Reading:
    """Return how cells are read where the columns of numbers are declared, by `asked.numeric`.

    Where the user says the decimal mark of such a column, or commas separate values, so that a dot stands before
    decimals, each row is read by itself, with any sign of money. Elsewhere all rows together tell it, and
    the column is `found`.

    Args:
        frame: Table as it was read from a file.
        asked: What the user says.
        separator: What separates values in the file; None if there is no file of text.

    Raises:
        ValueError: As `reading_of` does.
    """
    if separator == "," and ALL not in dict(asked.decimal):
        asked = replace(asked, decimal=(*asked.decimal, (ALL, ".")))
    reading, found = reading_of(frame, asked, separator), found_in_rows(frame, asked)
    settled = [name for name in map(str, frame) if name in asked.numeric and is_text(frame[name]) and name not in found]
    signs = dict(reading.signs) | dict.fromkeys(settled, ANY_SIGN)
    return reading._replace(signs=tuple(signs.items()), found=found, quantities=asked.quantities)


def found_in_rows(frame: pd.DataFrame, asked: Asked) -> tuple[str, ...]:
    """Return the declared columns of numbers that are text, and of which the user does not say how it writes them.

    Args:
        frame: Table as it was read from a file.
        asked: What the user says, with the declared columns in `numeric`.
    """
    said = dict(asked.decimal)
    return () if ALL in said else tuple(name for name in map(str, frame) if name in asked.numeric
                                        and name not in said and is_text(frame[name])
                                        and name not in dict(asked.quantities))


def reading_as_asked(asked: Asked) -> Reading:
    """Return how the cells of a table are read by what the user says alone, where no record may decide it for others.

    Numbers have a dot before decimals unless the user says otherwise, and any sign of money is left out.

    Args:
        asked: What the user says.
    """
    said = dict(asked.decimal)
    mark = said.pop(ALL, ".")
    exceptions = tuple((name, other) for name, other in said.items() if other != mark)
    return Reading(mark, exceptions, (), tuple(asked.missing_marks or ()), asked.capitals == "same", asked.categorical,
                   asked.numeric, keeps_missing=True, quantities=asked.quantities, answers=asked.answers)


def tidied(frame: pd.DataFrame, reading: Reading = PLAIN) -> pd.DataFrame:
    """Return the table with names spelled in one way, marks as missing values, and text as numbers where a whole column
    is; codes with leading zeros stay text.
    """
    return pd.DataFrame({str(name): tidied_column(column, reading) for name, column in frame.items()},
                        index=frame.index)


def tidied_column(column: pd.Series, reading: Reading = PLAIN) -> pd.Series:
    """Return one column as `tidied` makes it."""
    name, text = str(column.name), cells(column, reading)
    if text is None:
        plain = _without_numbers(column, reading.missing)
        return typed_numbers(plain) if reading.quantity(name) and declared_quantity(column) else plain
    if name in reading.categorical or (are_codes(text) and name not in reading.numeric):
        return named(text, reading)
    found = column_numbers(text, name, reading)
    if found.notna().any() and bool((found.notna() == without_words(text).notna()).all()):
        found = found if reading.quantity(name) else _without_numbers(found, reading.missing)  # in any writing
        return found.astype("float64" if found.isna().any() else found.to_numpy().dtype)
    return named(text, reading)


def column_numbers(text: pd.Series, name: str, reading: Reading) -> pd.Series:
    """Return the numbers of a column of text; missing where a text is none."""
    quantity = reading.quantity(name)
    if quantity:
        mark, known = reading.mark(name), text.dropna().unique()
        return text.map({each: number_of(each, quantity, mark) for each in known}).astype("float64")
    sign = ANY_SIGN if reading.keeps_missing else dict(reading.signs).get(name, "")
    return numbers(without_words(text), reading.mark(name), None if sign == ANY_SIGN else sign)


def typed_numbers(column: pd.Series) -> pd.Series:
    """Return the numbers of a column of dates, moments or durations by type, `[n]`; NaN where one is missing."""
    if is_timedelta64_dtype(column):
        micro = column.to_numpy("timedelta64[us]")
    else:
        utc = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
        micro = utc.to_numpy("datetime64[us]")
    return pd.Series(micro.astype("int64") / DAY, column.index, name=column.name).mask(column.isna())


def own_numbers(column: pd.Series) -> pd.Series:
    """Return the cells of a column of several kinds that are numbers by themselves, whatever the decimal mark of texts.

    Args:
        column: Column of objects, `[n]`.

    Returns:
        Numbers `[n]`, 1 and 0 for truth values; missing for every other cell.
    """
    return column.map(_own_number).astype("float64")


def _own_number(cell: object) -> float:
    """Return the number that a cell is, infinite beyond what doubles hold; NaN if it is none."""
    try:
        return float(cell) if isinstance(cell, int | float) else math.nan
    except OverflowError:
        return math.inf


def listed(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the columns of which a file says that their values are categories: whole numbers, as Arrow and R can have
    them, or values with labels, as programs for statistics have them.

    Args:
        frame: Table as it was read from a file; texts of which Arrow or pandas made categories are plain texts there.

    Examples:
        >>> wards = pd.Categorical([3, 1, 3])
        >>> listed(pd.DataFrame({"ward": wards, "age": [1, 2, 3], "sex": pd.Categorical(["f", "m", "f"])}))
        ('ward', 'sex')
    """
    return tuple(str(name) for name, column in frame.items() if isinstance(column.dtype, pd.CategoricalDtype))


def is_text(column: pd.Series) -> bool:
    """Return whether a column holds texts, or what is read as such: neither numbers, nor truth values, nor moments or
    durations.
    """
    return not (is_numeric_dtype(column) or is_bool_dtype(column) or declared_quantity(column))


def cells(column: pd.Series, reading: Reading = PLAIN) -> pd.Series | None:
    """Return a column of text spelled in one way, with marks as missing values; None for a column of another kind."""
    if not is_text(column):
        return None
    text, marks = all_spelled(column.astype("string")), marks_of(str(column.name), reading)
    if not numbers_among(marks):
        return text.mask(text.isin(marks))
    return text.mask(text.isin([each for each in text.dropna().unique() if is_mark(each, marks)]))


def named(text: pd.Series, reading: Reading) -> pd.Series:
    """Return a column of names, in one spelling each if capitals do not matter: the most frequent, or small letters
    where no record may decide it for others.

    Args:
        text: Column as `cells` makes it.
        reading: How it is read.
    """
    if reading.same_capitals and reading.keeps_missing:
        return text.map(folded, na_action="ignore").astype("string")
    return same_capitals(text) if reading.same_capitals else text


def _without_numbers(column: pd.Series, missing: Sequence[str]) -> pd.Series:
    """Return a column of numbers in which those that marks write are missing."""
    marks = pd.to_numeric(pd.Series(list(missing), dtype="string"), errors="coerce").dropna()
    return column.mask(column.isin(marks)) if len(marks) and not is_bool_dtype(column) else column


def whole_numbers(column: pd.Series) -> pd.Series:
    """Turn whole numbers that missing values had made 1.0, 2.0, ... back into 1, 2, ...; leave other columns alone."""
    if is_float_dtype(column) and bool(((column % 1 == 0) & (column.abs() < 2**53)).all()):
        return column.astype("int64")
    return column
