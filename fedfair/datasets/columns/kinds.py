"""What the columns of a raw table hold: numbers, categories, or values that are no features.

What is doubtful about a column's values: codes that look like numbers, marks for missing values, two spellings.

The answers are sentences with the setting that mends it. They quote cells, so they are for the time before a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_integer_dtype, is_numeric_dtype

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.quantities import ROUNDED, UNITS, sign_of
from fedfair.datasets.columns.relations import has_id_name
from fedfair.datasets.columns.texts import (
    AMONG_NUMBERS,
    alike,
    are_ranges,
    doubtful_mark,
    unit_of,
    way_of,
    ways,
    without_words,
    written_twice,
)
from fedfair.datasets.columns.tidy import are_iso_dates
from fedfair.datasets.names import toml_key

_CODE = re.compile(r"(.*[\W_])?(zip|zipcode|zip5|postcode|postalcode|postal|plz|cap|fips|naics|sic|soc|icd|icd9|icd10|"
                   r"puma|occp|indp|geoid|tract|areacode)([\W_]?code)?", re.IGNORECASE)
_LARGEST = 1e100  # squares of larger numbers are beyond double precision
_MANY = 20  # different numbers, or more, are not a few codes that are listed


def is_identifier(name: str, known: pd.Series) -> bool:
    """Return whether a column of whole numbers has the name of an identifier, and another value in every row."""
    return _is_whole(known) and len(known) > _MANY and known.is_unique and has_id_name(name)


def is_row_number(name: str, known: pd.Series) -> bool:
    """Return whether a column counts the rows: named by a program, or a gapless count with an identifier's name."""
    if not _is_whole(known) or not known.is_monotonic_increasing or not known.is_unique:
        return False
    gapless = len(known) > 1 and bool((known.diff().dropna() == 1).all())
    return name.startswith("Unnamed: ") or (gapless and has_id_name(name))


def is_date(known: pd.Series) -> bool:
    """Return whether whole numbers are all days, written as 20240131."""
    if not _is_whole(known) or not known.between(19000101, 21001231).all():
        return False
    return bool(pd.to_datetime(known.astype("int64").astype(str), format="%Y%m%d", errors="coerce").notna().all())


def of_numbers(name: str, known: pd.Series, asked: Asked) -> str | None:
    """Return why a column of numbers must not be used before the user has said what it is; None if it may."""
    if name not in asked.numeric and _is_whole(known) and known.nunique() > 2 and _CODE.fullmatch(name):
        return (f"column {name!r} holds whole numbers, but has the name of codes, which cannot be added up: give "
                f'categorical = ["{name}"], or numbers = ["{name}"] if they are numbers')
    mark = None if asked.missing_marks is not None or name in asked.numeric else doubtful_mark(known)
    if mark is not None and (mark >= 99 or mark <= -99):
        return (f"column {name!r} has {mark:g} in {int((known == mark).sum()):,} rows, far from its other values, as a "
                f'mark for missing values is: give missing_marks = ["{mark:g}"], or missing_marks = [] if it is a '
                "number")
    sizes = known[np.isfinite(known.astype("float64"))].abs()
    if len(sizes) and float(sizes.max()) > _LARGEST:
        return (f"column {name!r} has {sizes.max():g}, with which nothing can be computed: correct it, "
                f'or leave the column out with without = ["{name}"]')
    return None


def question_on_numbers(name: str, known: pd.Series, asked: Asked) -> str | None:
    """Return what the user may want to look at in a column of numbers that is used as it is; None if nothing."""
    if name in asked.numeric:
        return None
    mark = None if asked.missing_marks is not None else doubtful_mark(known)
    if mark is not None:
        return f'does {mark:g} in column {name!r} stand for a missing value? Then give missing_marks = ["{mark:g}"]'
    if _is_whole(known) and float(known.abs().max()) >= ROUNDED:
        return (f"are the numbers in column {name!r}, of {len(str(int(known.abs().max())))} digits, codes? Numbers of "
                f'so many are rounded, so that some are one. Then give categorical = ["{name}"]')
    if _is_whole(known) and len(known) > _MANY and known.is_unique:
        return (f"does column {name!r}, with another whole number in every row, identify records? Then give without = "
                f'["{name}"]')
    if _is_whole(known) and known.nunique() > 2 and re.search(r"code|class|type|kind|category|occupation|region|branch",
                                                              name, re.IGNORECASE):
        return f'are the numbers in column {name!r} codes? Then give categorical = ["{name}"]'
    return None


def of_names(name: str, kind: str, known: pd.Series, asked: Asked) -> str | None:
    """Return what is doubtful about names of classes, groups or categories; None if nothing is."""
    names = [str(value) for value in known.unique()]
    twice = alike(names) if asked.capitals == "refuse" else []
    if twice:
        return (f"column {name!r} has {' and '.join(map(repr, twice[0]))}, which differ by capital letters alone: give "
                f'capitals = "same" if they are the same {kind}, or capitals = "different"')
    written = [] if name in asked.categorical else written_twice(names)
    if written:
        return (f"column {name!r} has {' and '.join(map(repr, written[0]))}, which are one number written in different "
                "ways, as when a spreadsheet drops zeros: write it in one way, or give "
                + (f'numbers = ["{name}"] to take it as a number, or ' if kind not in _ROLES else "")
                + f'categorical = ["{name}"] if the texts differ')
    words = [value for value in names if value.casefold() in AMONG_NUMBERS]
    if words and asked.missing_marks is None and name not in asked.answers:
        return (f"is {words[0]!r} in column {name!r} an answer, as it is taken? If not, give missing_marks = "
                f'["{words[0]}"]')
    return None


def _is_whole(known: pd.Series) -> bool:
    """Return whether all values are whole numbers."""
    return is_integer_dtype(known) or bool(len(known) and pd.api.types.is_float_dtype(known) and (known % 1 == 0).all())


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
_MOSTLY = 0.8  # of a column's values write a quantity: then it is asked about
_UNITS = 10  # different units, or fewer, are units
_NEARLY = 0.9  # of a column's values are numbers: then the others are probably mistakes


@dataclass(frozen=True)
class Column:
    """A column: what it is taken as, its values in words, the number of missing ones, and what is wrong with it.

    `problem` says what is wrong and how to mend it; None if nothing is. `question` asks about what is but doubtful.
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
    quantity = dict(asked.quantities).get(name, "")
    return Column(name, kind, _in_words(known, kind, quantity), int(column.isna().sum()), problem,
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
    if is_row_number(name, known):
        return "row number"
    if is_identifier(name, known):
        return "identifier"
    return "date" if is_date(known) else "number"


def _question(name: str, kind: Kind, known: pd.Series, asked: Asked) -> str | None:
    """Return what to ask about a column that can be used as it is; None if nothing is doubtful."""
    if kind == "number":
        return question_on_numbers(name, known, asked)
    if is_numeric_dtype(known):
        return None
    return _measures(name, kind, known, asked) or of_names(name, kind, known, asked)


def _in_words(known: pd.Series, kind: Kind, quantity: str) -> str:
    """Describe the values of a column: their range, the most frequent ones, or the classes of a label."""
    if kind == "number" and quantity == "date":
        return " to ".join(str(pd.Timestamp(day, unit="D").date()) for day in (known.min(), known.max()))
    if kind in ("number", "row number", "date") and len(known):
        return f"{_short(known.min())} to {_short(known.max())}{f' {UNITS[quantity]}' if quantity else ''}"
    distinct = known.nunique()
    if kind.startswith("label"):
        return f"{distinct:,}: {numbered(sorted(known.unique()))}"
    counts = known.value_counts(sort=False).sort_values(ascending=False, kind="stable")  # of any pandas
    frequent = counts.index[:5].astype(str)
    return f"{distinct:,}: {', '.join(frequent)}{', ...' if distinct > len(frequent) else ''}"


def _short(value: object) -> object:
    """Return a value as it is, or a number rounded for people, and a day without midnight."""
    if isinstance(value, pd.Timestamp) and value == value.normalize():
        return value.date()
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
        return of_numbers(name, known, asked)
    if kind in _ROLES:
        return _problem_of_role(name, kind, known, asked)
    if kind == "date":
        return holds_dates(name, str(_short(known.iloc[0])), is_datetime64_any_dtype(known) or are_iso_dates(known))
    if kind == "identifier" and is_numeric_dtype(known):
        return (f"column {name!r} has another number in each of {rows:,} rows, as identifiers have: leave it out with "
                f'{_WITHOUT.format(name)}, or give numbers = ["{name}"]')
    measures = _measures(name, kind, known, asked)
    if measures and distinct > _FEW:
        return measures
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


def holds_dates(name: str, example: str | None, may_be_days: bool) -> str:
    """Return the sentence that refuses a column of dates.

    Args:
        name: The column.
        example: One of its dates; None where it must not be shown.
        may_be_days: Whether the dates are such as can be read.
    """
    shown = "" if example is None else f", such as {example}"
    days = f', take days since 1970-01-01 with quantities = {{ {toml_key(name)} = "date" }}' if may_be_days else ""
    return (f"column {name!r} holds dates{shown}: turn them into numbers, for example an age{days}, or leave the "
            f"column out with {_WITHOUT.format(name)}")


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
    names = [str(value) for value in known.unique()]
    alike_names = (asked.capitals == "refuse" and alike(names)) or (name not in asked.categorical
                                                                    and written_twice(names))
    return of_names(name, kind, known, asked) if alike_names and not numeric else None


def _measures(name: str, kind: Kind, known: pd.Series, asked: Asked) -> str:
    """Return what to ask about a column of texts that write quantities with bounds, units or signs; "" for others.

    Few ranges are bands, which are categories, and many different units are parts of names, as in codes of post.
    """
    if kind not in ("identifier", "category") or name in asked.categorical or is_numeric_dtype(known):
        return ""
    values = without_words(known.astype("string")).dropna()
    texts = pd.Series(values.unique(), dtype="string")
    written, signs = texts[ways(texts) != ""], texts.map(sign_of)
    share = values.isin({*written, *texts[signs.notna()]}).mean()
    if len(texts) <= 2 or share <= _MOSTLY or (len(texts) <= _FEW and are_ranges(written)):
        return ""
    mend = (f'or give categorical = ["{name}"] if each text is a category' if len(texts) <= _TEXTS else
            f"or leave the column out with {_WITHOUT.format(name)}")
    if len(written) and len({*written.map(unit_of)}) <= _UNITS:
        first = str(written.iloc[0])
        return (f"column {name!r} writes quantities as text, such as {first!r}, with {way_of(first)}: write plain "
                "numbers in one unit, for a bound one that stands for it, such as half of a limit of detection, "
                f"{mend}")
    if signs.nunique() > 1 and not len(written):
        two = texts.groupby(signs).first().tolist()[:2]
        return f"column {name!r} has {two[0]!r} and {two[1]!r}, with different signs: write all in one way, {mend}"
    return ""


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
