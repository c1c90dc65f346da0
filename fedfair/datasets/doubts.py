"""What is doubtful about a column's values: codes that look like numbers, marks for missing values, two spellings.

The answers are sentences with the setting that mends it. They quote cells, so they are for the time before a run.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype

from fedfair.datasets.missing_marks import AMONG_NUMBERS, doubtful_mark
from fedfair.datasets.reading import Asked
from fedfair.datasets.spelling import alike

_ID = re.compile(r"(.*[\W_])?(id|ids|uid|uuid|guid|pk|nr|index|rownum|rowid|account|ssn|iban|phone|telephone|mrn)|"
                 r".*[\W_](key|no|num|number)", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID|Nr|No|Key|Number)")
_CODE = re.compile(r"(.*[\W_])?(zip|zipcode|zip5|postcode|postalcode|postal|plz|cap|fips|naics|sic|soc|icd|icd9|icd10|"
                   r"puma|occp|indp|geoid|tract|areacode)([\W_]?code)?", re.IGNORECASE)
_LARGEST = 1e100  # squares of larger numbers are beyond double precision
_MANY = 20  # different numbers, or more, are not a few codes that are listed


def is_identifier(name: str, known: pd.Series) -> bool:
    """Return whether a column of whole numbers has the name of an identifier, and another value in every row."""
    return _is_whole(known) and len(known) > _MANY and known.is_unique and _has_id_name(name)


def is_row_number(name: str, known: pd.Series) -> bool:
    """Return whether a column counts the rows: named by a program, or a gapless count with an identifier's name."""
    if not _is_whole(known) or not known.is_monotonic_increasing or not known.is_unique:
        return False
    gapless = len(known) > 1 and bool((known.diff().dropna() == 1).all())
    return name.startswith("Unnamed: ") or (gapless and _has_id_name(name))


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
    words = [value for value in names if value.casefold() in AMONG_NUMBERS]
    if words and asked.missing_marks is None:
        return (f"is {words[0]!r} in column {name!r} an answer, as it is taken? If not, give missing_marks = "
                f'["{words[0]}"]')
    return None


def are_alike(known: pd.Series) -> bool:
    """Return whether some names differ by capitals alone."""
    return bool(alike(str(value) for value in known.unique()))


def _has_id_name(name: str) -> bool:
    """Return whether a column's name is that of an identifier."""
    return bool(_ID.fullmatch(name) or _CAMEL_ID.fullmatch(name))


def _is_whole(known: pd.Series) -> bool:
    """Return whether all values are whole numbers."""
    return is_integer_dtype(known) or bool(len(known) and pd.api.types.is_float_dtype(known) and (known % 1 == 0).all())
