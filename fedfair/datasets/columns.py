"""What the columns of a raw table hold: numbers, categories, or values that are no features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

Kind = Literal["label", "group", "label and group", "participant", "number", "boolean", "category", "single value",
               "row number", "date", "identifier"]
LEFT_OUT: tuple[Kind, ...] = ("single value", "row number")

_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
_BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
_WITHOUT = 'without = ["{}"]'
_CLASSES = 100  # the most classes of a label, or groups
_TEXTS = 1000  # the most different texts in one column
_FEW = 20  # different texts, or fewer, do not identify people
_NEARLY = 0.9  # of a column's values are numbers: then the others are probably mistakes


@dataclass(frozen=True)
class Column:
    """A column: what it is taken as, its values in words, the number of missing ones, and what is wrong with it.

    `problem` says what is wrong and how to mend it; None if nothing is.
    """

    name: str
    kind: Kind
    values: str
    missing: int
    problem: str | None = None


def understand(frame: pd.DataFrame, label: str, group: str, participant: str | None = None) -> list[Column]:
    """Decide what each column of a tidied table is taken as.

    Numbers stay numbers, even codes with few values; any other text is a category. These are no features: dates, texts
    that identify people, single values, and row numbers that a program wrote into a column without a name.
    """
    return [_understood(frame[name], _role(name, label, group, participant)) for name in map(str, frame)]


def _role(name: str, label: str, group: str, participant: str | None) -> Kind | None:
    """Return the role that the user gave a column, if any."""
    if name == label:
        return "label and group" if name == group else "label"
    if name == group:
        return "group"
    return "participant" if name == participant else None


def _understood(column: pd.Series, role: Kind | None) -> Column:
    """Decide what one column is taken as: its role, or else what its values are."""
    known = column.dropna()
    kind = role or _kind(str(column.name), known, len(column))
    return Column(str(column.name), kind, _in_words(known, kind), int(column.isna().sum()),
                  _problem(str(column.name), kind, known, len(column)))


def _kind(name: str, known: pd.Series, rows: int) -> Kind:
    """Decide what a column is, from its values that are not missing."""
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
    """Describe the values of a column: their range, the most frequent ones, or the classes of a label."""
    if kind in ("number", "row number", "date") and len(known):
        return f"{known.min()} to {known.max()}"
    distinct = known.nunique()
    if kind.startswith("label"):
        return f"{distinct:,}: {numbered(sorted(known.unique()))}"
    frequent = known.value_counts().index[:5].astype(str)
    return f"{distinct:,}: {', '.join(frequent)}{', ...' if distinct > len(frequent) else ''}"


def numbered(labels: Sequence[object]) -> str:
    """List the first few classes with their numbers: "0 = no, 1 = yes"."""
    first = ", ".join(f"{number} = {label}" for number, label in enumerate(labels[:5]))
    return f"{first}{', ...' if len(labels) > 5 else ''}"


def _problem(name: str, kind: Kind, known: pd.Series, rows: int) -> str | None:
    """Return why a column cannot be used as it is and what to do about it; None if it can."""
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
    """Return the first text, and its row, in a column of which nearly all values are numbers; else ""."""
    numbers = pd.to_numeric(known, errors="coerce")
    if numbers.notna().mean() < _NEARLY or numbers.nunique() <= _FEW:
        return ""
    strays = known[numbers.isna()]
    return f"{strays.iloc[0]!r} in row {strays.index[0] + 1}"


def problems(columns: Sequence[Column]) -> str:
    """Return all that is wrong with some columns, in one line; "" if nothing is."""
    return "; ".join(column.problem for column in columns if column.problem)
