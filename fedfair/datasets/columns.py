"""What the columns of a raw table hold: numbers, categories, or values that are no features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

from fedfair.datasets import doubts
from fedfair.datasets.reading import Asked

Kind = Literal["label", "group", "label and group", "participant", "number", "boolean", "category", "single value",
               "row number", "date", "identifier"]
LEFT_OUT: tuple[Kind, ...] = ("single value", "row number")

_DATE = (r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2}([T ].*)?)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?|"
         r"\d{1,2}[-. ][A-Za-z]{3,9}\.?[-. ,]+\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2}, \d{4}|[A-Za-z]{3,9}[- ]\d{4}|"
         r"\d{1,2}:\d{2}(:\d{2})?")
_AS_ASKED = Asked()
_ROLES = ("label", "group", "label and group")
_BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
_WITHOUT = 'without = ["{}"]'
_CLASSES = 100  # the most classes of a label, or groups
_TEXTS = 1000  # the most different texts in one column
_FEW = 20  # different texts, or fewer, do not identify people
_NEARLY = 0.9  # of a column's values are numbers: then the others are probably mistakes


@dataclass(frozen=True)
class Column:
    """A column: what it is taken as, its values in words, the number of missing ones, and what is wrong with it.

    `problem` says what is wrong and how to mend it; None if nothing is. `question` asks about what may be used as it
    is, but is doubtful.
    """

    name: str
    kind: Kind
    values: str
    missing: int
    problem: str | None = None
    question: str | None = None


def understand(frame: pd.DataFrame, label: str, group: str | Sequence[str], participant: str | None = None,
               asked: Asked = _AS_ASKED) -> list[Column]:
    """Decide what each column of a tidied table is taken as; there may be several columns of groups.

    Numbers stay numbers, even codes with few values, unless they are `asked.categorical`; any other text is a category.
    These are no features: dates, values that identify people, single values, and row numbers.
    """
    groups = (group,) if isinstance(group, str) else tuple(group)
    return [_understood(frame[name], _role(name, label, groups, participant), asked) for name in map(str, frame)]


def _role(name: str, label: str, groups: Sequence[str], participant: str | None) -> Kind | None:
    """Return the role that the user gave a column, if any."""
    if name == label:
        return "label and group" if name in groups else "label"
    if name in groups:
        return "group"
    return "participant" if name == participant else None


def _understood(column: pd.Series, role: Kind | None, asked: Asked) -> Column:
    """Decide what one column is taken as: its role, or else what its values are."""
    name, known = str(column.name), column.dropna()
    kind = role or _kind(name, known, len(column), asked)
    problem = _problem(name, kind, known, len(column), asked)
    return Column(name, kind, _in_words(known, kind), int(column.isna().sum()), problem,
                  None if problem else _question(name, kind, known, asked))


def _kind(name: str, known: pd.Series, rows: int, asked: Asked) -> Kind:
    """Decide what a column is, from its values that are not missing."""
    distinct = known.nunique()
    if distinct <= 1:
        return "single value"
    if name in asked.categorical:
        return "category"
    if is_bool_dtype(known):
        return "boolean"
    if is_datetime64_any_dtype(known):
        return "date"
    if is_numeric_dtype(known):
        return "number" if name in asked.numeric else _kind_of_numbers(name, known)
    if bool(known.astype(str).str.fullmatch(_DATE).all()):
        return "date"
    if set(known.astype(str).str.lower()) in _BOOLEANS:
        return "boolean"
    return "identifier" if distinct > max(_FEW, rows / 2) else "category"


def _kind_of_numbers(name: str, known: pd.Series) -> Kind:
    """Decide what numbers are."""
    if doubts.is_row_number(name, known):
        return "row number"
    if doubts.is_identifier(name, known):
        return "identifier"
    return "date" if doubts.is_date(known) else "number"


def _question(name: str, kind: Kind, known: pd.Series, asked: Asked) -> str | None:
    """Return what to ask about a column that can be used as it is; None if nothing is doubtful."""
    if kind == "number":
        return doubts.question_on_numbers(name, known, asked)
    return None if is_numeric_dtype(known) else doubts.of_names(name, kind, known, asked)


def _in_words(known: pd.Series, kind: Kind) -> str:
    """Describe the values of a column: their range, the most frequent ones, or the classes of a label."""
    if kind in ("number", "row number", "date") and len(known):
        return f"{_short(known.min())} to {_short(known.max())}"
    distinct = known.nunique()
    if kind.startswith("label"):
        return f"{distinct:,}: {numbered(sorted(known.unique()))}"
    frequent = known.value_counts().index[:5].astype(str)
    return f"{distinct:,}: {', '.join(frequent)}{', ...' if distinct > len(frequent) else ''}"


def _short(value: object) -> object:
    """Return a value as it is, or a number rounded for people."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return round(value, 2) if abs(value) >= 1 or value == 0 else float(f"{value:.2g}")


def numbered(labels: Sequence[object]) -> str:
    """List the first few classes with their numbers: "0 = no, 1 = yes"."""
    first = ", ".join(f"{number} = {label}" for number, label in enumerate(labels[:5]))
    return f"{first}{', ...' if len(labels) > 5 else ''}"


def _problem(name: str, kind: Kind, known: pd.Series, rows: int, asked: Asked) -> str | None:
    """Return why a column cannot be used as it is and what to do about it; None if it can."""
    distinct = known.nunique()
    if kind == "number":
        return doubts.of_numbers(name, known, asked)
    if kind in _ROLES:
        return _problem_of_role(name, kind, known, asked)
    if kind == "date":
        return (f"column {name!r} holds dates, such as {known.iloc[0]}: turn them into numbers, for example an age, or "
                f"leave the column out with {_WITHOUT.format(name)}")
    if kind == "identifier" and is_numeric_dtype(known):
        return (f"column {name!r} has another number in each of {rows:,} rows, as identifiers have: leave it out with "
                f'{_WITHOUT.format(name)}, or give numbers = ["{name}"]')
    if kind in ("identifier", "category") and (stray := _stray(known)):
        return (f"column {name!r} has numbers, but also {stray}: correct that, or leave it empty, which missing = "
                '"drop" leaves out')
    if kind == "identifier":
        return (f"column {name!r} has {distinct:,} different texts in {rows:,} rows, as names have: nothing can be "
                f"learned from it; leave it out with {_WITHOUT.format(name)}")
    if kind == "category" and distinct > _TEXTS:
        return (f"column {name!r} has {distinct:,} different texts, and each would be a feature: put them into at most "
                f"{_TEXTS:,} classes, or leave the column out with {_WITHOUT.format(name)}")
    return None


def _problem_of_role(name: str, kind: Kind, known: pd.Series, asked: Asked) -> str | None:
    """Return why a column cannot be the label or the group; None if it can."""
    distinct = known.nunique()
    numeric = is_numeric_dtype(known) and not is_bool_dtype(known)
    if kind != "label" and numeric and distinct > _FEW:
        ends = sorted({round(float(known.quantile(share))) for share in (1 / 3, 2 / 3)})
        return (f"column {name!r} is a number with {distinct:,} different values, too many for a {kind}: put them into "
                f"bands, for example bands = {ends}")
    if distinct > _CLASSES:
        return (f"column {name!r} has {distinct:,} different values, too many for a {kind}: put them into at most "
                f"{_CLASSES} classes, for example ranges")
    if not numeric and asked.capitals == "refuse" and doubts.are_alike(known):
        return doubts.of_names(name, kind, known, asked)
    return None


def _stray(known: pd.Series) -> str:
    """Return the first text, and its row, in a column of which nearly all values are numbers; else ""."""
    numbers = pd.to_numeric(known, errors="coerce")
    if numbers.notna().all() or numbers.notna().mean() < _NEARLY or numbers.nunique() <= _FEW:
        return ""
    strays = known[numbers.isna()]
    return f"{strays.iloc[0]!r} in row {strays.index[0] + 1}"


def problems(columns: Sequence[Column]) -> str:
    """Return all that is wrong with some columns, in one line; "" if nothing is."""
    return "; ".join(column.problem for column in columns if column.problem)
