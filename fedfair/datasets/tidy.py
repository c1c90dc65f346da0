"""Tidying a raw table: stripped text, missing values as such, and numbers where a whole column holds numbers."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

_THOUSANDS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"
_DECIMAL_COMMA = r"[+-]?\d+(,\d+)?"
_MISSING = ("", "?")


def tidied(frame: pd.DataFrame, decimal: Collection[str] = ()) -> pd.DataFrame:
    """Return the table with text stripped, "" and "?" as missing values, and text as numbers where a whole column is.

    A comma in a number is before decimals in the columns `decimal` and in those that `decimal_commas` finds; elsewhere
    it is between thousands.
    """
    before = {*decimal, *decimal_commas(frame)}
    return pd.DataFrame({str(name): _tidy(column, str(name) in before) for name, column in frame.items()},
                        index=frame.index)


def decimal_commas(frame: pd.DataFrame) -> list[str]:
    """Return the columns of numbers written as text in which some comma cannot be between thousands."""
    return [str(name) for name, column in frame.items() if _has_decimal_commas(_text(column))]


def _has_decimal_commas(text: pd.Series | None) -> bool:
    """Return whether a column of text holds numbers, one of them with a comma that cannot be between thousands."""
    if text is None or not text.str.fullmatch(_DECIMAL_COMMA).fillna(text.isna()).all():
        return False
    return bool((~_between_thousands(text) & text.str.contains(",")).any())


def _text(column: pd.Series) -> pd.Series | None:
    """Return a column of text, stripped, with missing values as such; None for a column of another kind."""
    if is_numeric_dtype(column) or is_bool_dtype(column) or is_datetime64_any_dtype(column):
        return None
    text = column.astype("string").str.strip()
    return text.mask(text.isin(_MISSING))


def _between_thousands(text: pd.Series) -> pd.Series:
    """Return whether the commas of each text can be between thousands."""
    return text.str.fullmatch(_THOUSANDS).fillna(False)


def _tidy(column: pd.Series, decimal: bool) -> pd.Series:
    """Tidy one column, with commas before decimals if `decimal`, and else between thousands."""
    text = _text(column)
    if text is None:
        return column
    plain = text.str.replace(",", ".") if decimal else text.where(~_between_thousands(text), text.str.replace(",", ""))
    numbers = pd.to_numeric(plain, errors="coerce")
    if numbers.notna().any() and bool((numbers.notna() == text.notna()).all()):
        return numbers.astype("float64" if numbers.isna().any() else numbers.to_numpy().dtype)
    return text
