"""One spelling for one name: Unicode's composed form, single spaces, and capitals where they do not matter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import pandas as pd

from fedfair.datasets.columns.cell import folded, spelled, written_number

_WHOLE = re.compile(r"[+-]?[0-9]+")
_SPELLED = r"(?:[!-~]+(?: [!-~]+)*)?"  # visible ASCII, with single spaces: most texts, which are told at once


def all_spelled(texts: pd.Series) -> pd.Series:
    """Return a column of text with each of its texts as `spelled` spells it."""
    different = texts.dropna().drop_duplicates()
    strange = different[~different.str.fullmatch(_SPELLED)]
    if strange.empty:
        return texts
    return texts.map({**dict(zip(different, different, strict=True)), **{text: spelled(text) for text in strange}}
                     ).astype("string")


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the sets of names that differ by capitals alone, each sorted."""
    sets: dict[str, set[str]] = {}
    for name in names:
        sets.setdefault(folded(name), set()).add(name)
    return [tuple(sorted(names)) for names in sets.values() if len(names) > 1]


def written_twice(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the sets of names that are one number, each sorted, as a spreadsheet makes them that drops zeros.

    Examples:
        >>> written_twice(["01", "1", "1.0", "2", "10", "a", "nan"])
        [('01', '1', '1.0')]
        >>> written_twice(["1152921504606846977", "1152921504606846978"])
        []
    """
    sets: dict[float, set[str]] = {}  # a whole number and a double that is equal are one key
    for name in names:
        number = int(name) if _WHOLE.fullmatch(name) else written_number(name)  # doubles merge beyond 2^53
        if number is not None and math.isfinite(number):
            sets.setdefault(number, set()).add(name)
    return [tuple(sorted(names)) for names in sets.values() if len(names) > 1]


def same_capitals(text: pd.Series) -> pd.Series:
    """Return a column of text in which names that differ by capitals alone have their most frequent spelling."""
    frequent = text.value_counts()
    by_name: dict[str, str] = {}
    for name in sorted(map(str, frequent.index), key=lambda name: (-frequent[name], name)):
        by_name.setdefault(folded(name), name)
    return text.map(lambda name: by_name[folded(name)], na_action="ignore").astype("string")
