"""The text of a schema to be edited, from what a file holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import tomli_w

from fedfair.datasets.columns import LEFT_OUT, understand
from fedfair.datasets.encoding import OTHER
from fedfair.datasets.name_lists import as_text
from fedfair.datasets.schema import RECORDS
from fedfair.datasets.table import whole_numbers

_HEAD = f"""\
# A schema: what everybody may know of a table's columns, so that preparing them costs no privacy.
# Its first version was read off the records, and would give some of them away: put the published range of every
# number and the published list of every category in its place. Then name where they are published as the source.
# The lists of label and group are those of all classes and groups. Nodes with files of their own are held to them.
# While the source is "{RECORDS}", runs with this schema have a guarantee that is only nominal.
# A number beyond its range counts as its end, a category that is not listed as "{OTHER}".

"""


def schema_text(frame: pd.DataFrame, label: str, groups: Sequence[str]) -> str:
    """Return the schema of a tidied table, with ranges that end in round numbers.

    Args:
        frame: Tidied table.
        label: Column to predict.
        groups: Columns of the groups, whose names are public anyway, as those of the classes are.
    """
    kinds = {column.name: column.kind for column in understand(frame, label, groups)}
    ranges = {name: list(_round_range(frame[name])) for name, kind in kinds.items() if kind == "number"}
    categories = {name: [*_values(frame[name]), OTHER] for name, kind in kinds.items()
                  if kind in ("boolean", "category")}
    categories |= {name: _values(frame[name]) for name in dict.fromkeys((*groups, label))}
    unused = [name for name, kind in kinds.items() if kind in LEFT_OUT]
    note = f"# Columns with nothing to learn from: leave them out with without = {unused}\n\n" if unused else ""
    return _HEAD + note + tomli_w.dumps({"source": RECORDS, "label": label, "group": as_text(groups), "ranges": ranges,
                                         "categories": categories})


def _values(column: pd.Series) -> list[str]:
    """Return the values of a column as text, sorted, numbers by size."""
    return [str(value) for value in sorted(whole_numbers(column.dropna()).unique())]


def _round_range(column: pd.Series) -> tuple[float, float]:
    """Return a range around the numbers of a column, with ends of two digits."""
    low, high = float(column.min()), float(column.max())
    unit = 10.0 ** (math.floor(math.log10(max(high - low, abs(high), 1e-300))) - 1)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit
