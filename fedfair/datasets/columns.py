"""What the columns of a table that nobody here prepared hold: numbers, categories, or something that is no feature."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

Kind = Literal["label", "group", "label and group", "participant", "number", "boolean", "category", "single value",
               "row number", "date", "identifier"]
LEFT_OUT: tuple[Kind, ...] = ("single value", "row number")

_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
_THOUSANDS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"
_DECIMAL_COMMA = r"[+-]?\d+(,\d+)?"
_BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
_MISSING = ("", "?")
_WITHOUT = 'without = ["{}"]'
_CLASSES = 100  # of a label, or groups, at most
_TEXTS = 1000  # different texts in one column, at most
_FEW = 20  # different texts that are too few to tell people apart
_NEARLY = 0.9  # of a column's values, if they are numbers


@dataclass(frozen=True)
class Column:
    """A column: what it is taken as, its values in words, how many are missing, and what is wrong with it, if anything.

    `problem` is a sentence that says how to mend it.
    """

    name: str
    kind: Kind
    values: str
    missing: int
    problem: str | None = None


def tidied(frame: pd.DataFrame, decimal: Collection[str] = ()) -> pd.DataFrame:
    """The same table with text stripped, "" and "?" as missing, and columns of numbers written as text as numbers.

    A comma is before decimals in the columns `decimal`, and in those of `decimal_commas`; else between thousands.
    """
    before = {*decimal, *decimal_commas(frame)}
    return pd.DataFrame({str(name): _tidy(column, str(name) in before) for name, column in frame.items()},
                        index=frame.index)


def decimal_commas(frame: pd.DataFrame) -> list[str]:
    """The columns of numbers written as text in which some comma could not be between thousands."""
    found = []
    for name, column in frame.items():
        text = _text(column)
        if text is not None and bool(text.str.fullmatch(_DECIMAL_COMMA).fillna(text.isna()).all()) and bool(
                (~_between_thousands(text) & text.str.contains(",")).any()):
            found.append(str(name))
    return found


def understand(frame: pd.DataFrame, label: str, group: str, participant: str | None = None) -> list[Column]:
    """What each column of a tidied table is taken as.

    Numbers stay numbers, even codes with few values; every other text is a category. No feature are dates, texts that
    tell people apart, columns with a single value, and row numbers that a program wrote into a column without a name.
    """
    return [_understood(frame[name], _role(name, label, group, participant)) for name in map(str, frame)]


def _role(name: str, label: str, group: str, participant: str | None) -> Kind | None:
    """What a column was said to be."""
    if name == label:
        return "label and group" if name == group else "label"
    if name == group:
        return "group"
    return "participant" if name == participant else None


def _understood(column: pd.Series, role: Kind | None) -> Column:
    """One column, in the role that it was given if it was."""
    known = column.dropna()
    kind = role or _kind(str(column.name), known, len(column))
    return Column(str(column.name), kind, _in_words(known, kind), int(column.isna().sum()),
                  _problem(str(column.name), kind, known, len(column)))


def _text(column: pd.Series) -> pd.Series | None:
    """A column of text, stripped, with what is missing as such; None for one of another kind."""
    if is_numeric_dtype(column) or is_bool_dtype(column) or is_datetime64_any_dtype(column):
        return None
    text = column.astype("string").str.strip()
    return text.mask(text.isin(_MISSING))


def _between_thousands(text: pd.Series) -> pd.Series:
    """Where commas can be between thousands."""
    return text.str.fullmatch(_THOUSANDS).fillna(False)


def _tidy(column: pd.Series, decimal: bool) -> pd.Series:
    """One tidied column, with commas before decimals or between thousands."""
    text = _text(column)
    if text is None:
        return column
    plain = text.str.replace(",", ".") if decimal else text.where(~_between_thousands(text), text.str.replace(",", ""))
    numbers = pd.to_numeric(plain, errors="coerce")
    if numbers.notna().any() and bool((numbers.notna() == text.notna()).all()):
        return numbers.astype("float64" if numbers.isna().any() else numbers.to_numpy().dtype)
    return text


def _kind(name: str, known: pd.Series, rows: int) -> Kind:
    """What a column is, from its values that are not missing."""
    distinct = known.nunique()
    if distinct <= 1:
        return "single value"
    if is_bool_dtype(known):
        return "boolean"
    if is_datetime64_any_dtype(known):
        return "date"
    if is_numeric_dtype(known):
        rising = known.is_monotonic_increasing and known.is_unique
        return "row number" if name.startswith("Unnamed: ") and rising else "number"
    if bool(known.str.fullmatch(_DATE).all()):
        return "date"
    if set(known.str.lower()) in _BOOLEANS:
        return "boolean"
    return "identifier" if distinct > max(_FEW, rows / 2) else "category"


def _in_words(known: pd.Series, kind: Kind) -> str:
    """The values of a column: a range, the most frequent ones, or of a label the numbers of its classes."""
    if kind in ("number", "row number", "date") and len(known):
        return f"{known.min()} to {known.max()}"
    distinct = known.nunique()
    if kind.startswith("label"):
        return f"{distinct:,}: {numbered(sorted(known.unique()))}"
    frequent = known.value_counts().index[:5].astype(str)
    return f"{distinct:,}: {', '.join(frequent)}{', ...' if distinct > len(frequent) else ''}"


def numbered(labels: Sequence[object]) -> str:
    """The first few classes with their numbers: "0 = no, 1 = yes"."""
    first = ", ".join(f"{number} = {label}" for number, label in enumerate(labels[:5]))
    return f"{first}{', ...' if len(labels) > 5 else ''}"


def _problem(name: str, kind: Kind, known: pd.Series, rows: int) -> str | None:
    """Why a column cannot be used as it is, and what to do about it."""
    distinct = known.nunique()
    if kind == "date":
        return (f"column {name!r} holds dates, such as {known.iloc[0]}: turn them into numbers, for example an age, or "
                f"leave the column out with {_WITHOUT.format(name)}")
    if kind in ("identifier", "category") and (stray := _stray(known)):
        return (f"column {name!r} has numbers, but also {stray}: correct that, or leave it empty, which missing = "
                '"drop" leaves out')
    if kind == "identifier":
        return (f"column {name!r} has {distinct:,} different texts in {rows:,} rows, as names have: nothing can be "
                f"learned from it; leave it out with {_WITHOUT.format(name)}")
    if kind == "category" and distinct > _TEXTS:
        return (f"column {name!r} has {distinct:,} different texts, and each would be a feature: put them into at most "
                f"{_TEXTS:,} classes, or leave the column out with {_WITHOUT.format(name)}")
    if kind in ("label", "group", "label and group") and distinct > _CLASSES:
        return (f"column {name!r} has {distinct:,} different values, too many for a {kind}: put them into at most "
                f"{_CLASSES} classes, for example ranges")
    return None


def _stray(known: pd.Series) -> str:
    """The first text in a column of which nearly all values are numbers, and its row; empty if they are not."""
    numbers = pd.to_numeric(known, errors="coerce")
    if numbers.notna().mean() < _NEARLY or numbers.nunique() <= _FEW:
        return ""
    strays = known[numbers.isna()]
    return f"{strays.iloc[0]!r} in row {strays.index[0] + 1}"


def problems(columns: Sequence[Column]) -> str:
    """All that is wrong with some columns, in one line; empty if nothing is."""
    return "; ".join(column.problem for column in columns if column.problem)
