"""What columns of a table say of each other: one that gives the label or the group away, and one that names persons.

All records are looked at, so it is for the time before a run; what names alone tell, a fit may say at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

_ID = re.compile(r"(.*[\W_])?(id|ids|uid|uuid|guid|pk|nr|index|rownum|rowid|account|ssn|iban|phone|telephone|mrn)|"
                 r".*[\W_](key|no|num|number)", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID|Nr|No|Key|Number)")
_SURE = 0.99  # of the rows have the label, or the group, that a column tells
_ERRORS = 0.1  # of those that a guess without the column makes: a rare class is guessed right nearly always
_MANY = 20  # different values, or more, are put into bins
_BINS = 50
_ROWS = 20  # for each value, or more: else a value tells by chance


def told_by(column: pd.Series, target: pd.Series) -> tuple[int, int, int]:
    """Return how often the most frequent value of a target is right for each value of a column.

    Args:
        column: Its values `[n]`; numbers of many values are put into bins of about as many rows.
        target: Values of another column `[n]`.

    Returns:
        In how many rows that is right, how many have both values, and in how many of them the target's most frequent
        value is right without the column. All are 0 where values are too many to tell.

    Examples:
        >>> told_by(pd.Series(["x", "x", "y", "y"] * 10), pd.Series([1, 1, 0, 1] * 10))
        (30, 40, 30)
        >>> told_by(pd.Series(range(40)), pd.Series([0] * 20 + [1] * 20))
        (40, 40, 20)
    """
    known = column.notna() & target.notna()
    values, targets, rows = column[known], target[known], int(known.sum())
    if is_numeric_dtype(values) and not is_bool_dtype(values) and values.nunique() >= _MANY:
        values = pd.qcut(values.astype("float64"), max(2, min(_BINS, rows // _ROWS)), labels=False, duplicates="drop")
    if not rows or values.nunique() > max(2, rows // _ROWS):
        return 0, 0, 0
    counts = pd.crosstab(values.to_numpy(), targets.to_numpy())
    return int(counts.max(axis=1).sum()), rows, int(counts.sum().max())


def questions(frame: pd.DataFrame, label: str, groups: Sequence[str], participant: str | None = None) -> list[str]:
    """Return a question for each column that gives the label or a group away, or that names persons of several rows.

    Args:
        frame: Tidied table.
        label: Column to predict.
        groups: Columns of the groups.
        participant: Column that names the person of each row, if one was named.
    """
    roles = (label, *groups, participant)
    features = [name for name in map(str, frame) if name not in roles]
    asked = [_of_label(name, label, *told_by(frame[name], frame[label])) for name in features]
    asked += [_of_group(name, group, *told_by(frame[name], frame[group])) for group in dict.fromkeys(groups)
              for name in features if group != label]
    if participant is None:
        asked += [_of_persons(name, frame[name]) for name in features]
    return [question for question in asked if question]


def _is_told(right: int, rows: int, without: int) -> bool:
    """Return whether a column tells a target in nearly all rows, and not because nearly all have one value."""
    return rows > 0 and right >= _SURE * rows and rows - right <= _ERRORS * (rows - without) and rows > without


def _of_label(name: str, label: str, right: int, rows: int, without: int) -> str:
    """Return what to ask about a column that tells the label; "" for another."""
    if not _is_told(right, rows, without):
        return ""
    return (f"is column {name!r} known before {label!r} is? It alone tells {label!r} in {right:,} of {rows:,} rows, as "
            f'what is the label in other words does. If it is not known then, give without = ["{name}"]')


def _of_group(name: str, group: str, right: int, rows: int, without: int) -> str:
    """Return what to ask about a column that tells the group; "" for another."""
    if not _is_told(right, rows, without):
        return ""
    return (f"is column {name!r} the group {group!r} in other words? It tells {group!r} in {right:,} of {rows:,} rows, "
            f'so that a model with it decides by group. If it should not, give without = ["{name}"]')


def _of_persons(name: str, column: pd.Series) -> str:
    """Return what to ask about a column with the name of identifiers whose values repeat; "" for another."""
    known = column.dropna()
    different = known.nunique()
    if not has_id_name(name) or not _MANY < different < len(known):
        return ""
    return (f"do several rows belong to one person? Column {name!r} has the name of an identifier, and {different:,} "
            f'values in {len(known):,} rows. If so, give participant = "{name}": it is no feature then, and all rows '
            "of one person go into one part. A fit keeps each row within its epsilon, not each person; fedfair run "
            f'--strategy moments-of-participants keeps persons. If not, give without = ["{name}"]')


def has_id_name(name: str) -> bool:
    """Return whether a column's name is that of an identifier.

    Args:
        name: Name of the column.
    """
    return bool(_ID.fullmatch(name) or _CAMEL_ID.fullmatch(name))


def identifiers(names: Iterable[str]) -> list[str]:
    """Return the names that are those of identifiers, which is public.

    Examples:
        >>> identifiers(["age", "person_id", "caseNo"])
        ['person_id', 'caseNo']
    """
    return [name for name in names if has_id_name(name)]
