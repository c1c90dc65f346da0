"""Tables of nodes that each have a file of their own: read as a schema says, in the order of its columns.

Columns that the schema does not name are not read. What a refusal says holds no value of a file; the node's own log
names the values, also those that count as another: a category as "other", a number as the end of its range.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedfair.datasets.columns.convention import ANY_SIGN, PLAIN, Reading, as_declared
from fedfair.datasets.columns.tidy import declared_quantity, reading_as_asked, tidied
from fedfair.datasets.features.encoder import encode, kept
from fedfair.datasets.features.encoding import OTHER, Encoding, Feature
from fedfair.datasets.features.features import Range, leave_out
from fedfair.datasets.files.chunks import read_rows
from fedfair.datasets.grouped import GroupedDataset, weights_of
from fedfair.datasets.names import visible
from fedfair.datasets.schema import Agreement, SchemaMismatch
from fedfair.datasets.split import numbers_of_names, numbers_of_rows
from fedfair.datasets.table import complete

_log = logging.getLogger(__name__)


def no_records(known: Agreement) -> GroupedDataset:
    """Return the data set of no record: all that is known where there is no file.

    Raises:
        ValueError: If the schema does not list the values of label and groups.
    """
    numbers = {*_numbers(known), known.weight}
    empty = {name: pd.Series(dtype="float64" if name in numbers else "string") for name in known.columns}
    frame = pd.DataFrame(empty)
    return _encoded(frame, known, _reading(frame, known), {name: frame[name] for name in filter(
        None, (known.participant, known.site))})


def records_of(path: Path, known: Agreement) -> GroupedDataset:
    """Return the records of a node's file, with the features, groups and classes of every other node's.

    Args:
        path: The file.
        known: What all nodes know of each other's.

    Raises:
        SchemaMismatch: If columns are absent, or hold what the schema does not allow for.
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or the schema does not list the values of label and groups.
    """
    file = read_rows(path, known.asked)
    if file.left_out:
        _log.warning("left out: %d rows of %s, which are empty or cannot be read, beside %d", file.left_out, path,
                     len(file.frame))
    absent = [name for name in known.columns if name not in file.frame]
    if absent:
        _log.warning("%s has no column %s; it has %s", path, visible(", ".join(absent)),
                     visible(", ".join(map(str, file.frame))))
    _refuse([f"it has no column {', '.join(_public(name, known) for name in absent)}"] if absent else [])
    raw = file.frame[known.columns]
    reading = _reading(raw, known)
    whole = tidied(raw, reading)
    gaps = [name for name in known.columns if whole[name].isna().any()] if known.missing == "refuse" else []
    for name in gaps:
        _told(raw[name], torch.tensor(whole[name].isna().to_numpy()), "count as missing")
    _refuse([f"values are missing in {', '.join(_public(name, known, 'the column ') for name in gaps)}"]
            if gaps else [])
    whole = complete(whole, known.missing)
    rows = torch.tensor(whole.index.to_numpy("int64"))
    named = {name: kept(raw.loc[whole.index, name], PLAIN).reset_index(drop=True)
             for name in filter(None, (known.participant, known.site))}  # each by itself, whatever the others are
    whole = whole.reset_index(drop=True)
    _refuse([_told(whole[name], _no_number(whole[name]), "are no numbers") for name in _numbers(known)])
    person = numbers_of_names(named[known.participant]) if known.participant else rows[:0]
    apart = [*filter(None, (known.participant, known.weight, known.site))]
    return replace(_encoded(whole, known, reading, named), records=rows, person=person,
                   content=numbers_of_rows(whole[name] for name in whole if name not in apart))


def _public(column: str, known: Agreement, word: str = "") -> str:
    """Return what a column is called in a refusal; nobody else knows the name of that of a node's own sites, before
    which a word stands.
    """
    return f"{word}of sites (site), which its owner named" if column == known.site else column


def _numbers(known: Agreement) -> tuple[str, ...]:
    """Return the columns that must hold numbers."""
    return tuple(dict.fromkeys((*known.numbers, *known.banded)))


def _reading(frame: pd.DataFrame, known: Agreement) -> Reading:
    """Return how the cells of a node's table are read: as schema and settings say, whatever the rows hold."""
    roles = (known.label, known.participant, known.weight, known.site)
    asked = as_declared(known.asked, [*map(str, frame)], _numbers(known), roles)
    signs = tuple((name, ANY_SIGN) for name in _numbers(known))
    return reading_as_asked(asked)._replace(bands=tuple(known.bands.items()), signs=signs, keeps_missing=False)


def _encoded(whole: pd.DataFrame, known: Agreement, reading: Reading, named: Mapping[str, pd.Series]
             ) -> GroupedDataset:
    """Return the records of a complete table, with the names of participants and sites by their column; raise
    `SchemaMismatch` for values that the schema does not list.
    """
    names = {name: known.names(name) for name in (known.label, *known.attributes)}
    codes = {name: _codes(whole, name, listed, reading) for name, listed in names.items()}
    strange = {name: code < 0 for name, code in codes.items()}
    unlisted = {name: _unlisted(whole, name, listed, reading) for name, listed in known.lists.items()}
    others = {name: rows for name, rows in unlisted.items() if OTHER in known.lists[name] and not rows.all()}
    strange |= {name: rows for name, rows in unlisted.items() if name not in others}
    _refuse([_told(whole[name], rows, "the schema does not list") for name, rows in strange.items()])
    for name, rows in others.items():
        _told(whole[name], rows, f'the schema does not list, which count as "{OTHER}",')
    for known_range in known.schema.ranges:
        if known_range.column in known.numbers:
            _told(whole[known_range.column], _outside(whole, known_range), "are outside its range, which count as its "
                  "ends,")
    group = torch.zeros(len(whole), dtype=torch.long)
    for name in known.attributes:
        group = group * len(names[name]) + codes[name]
    features = [Feature(name) for name in known.numbers]
    for name, listed in known.lists.items():
        features += [Feature(name, category) for category in listed]
    encoding = Encoding(tuple(features), reading=reading, listed=tuple(known.lists))
    data = GroupedDataset(
        x=encode(whole, encoding), y=codes[known.label], group=group,
        names=tuple(map(" & ".join, product(*(names[name] for name in known.attributes)))),
        classes=len(names[known.label]), labels=names[known.label], encoding=encoding)
    return leave_out(_with_roles(data, whole, known, named), [
        name for name in known.without if name not in known.schema.columns])


def _with_roles(data: GroupedDataset, whole: pd.DataFrame, known: Agreement, named: Mapping[str, pd.Series]
                ) -> GroupedDataset:
    """Return the records with their weights, participants and sites, where columns name them."""
    if known.weight and len(whole):
        data = replace(data, weight=weights_of(whole[known.weight]))
    if known.participant:
        people = pd.Categorical(named[known.participant]).codes.astype("int64")
        data = replace(data, participant=torch.tensor(people))
    if known.site and len(whole):
        places = pd.Categorical(named[known.site])
        data = replace(data, site=torch.tensor(places.codes.astype("int64")),
                       sites=tuple(f"site {number}" for number in range(len(places.categories))))
    return data


def _codes(whole: pd.DataFrame, column: str, names: Sequence[str], reading: Reading) -> Tensor:
    """Return the position of each row's value among the names, `[n]`; -1 for one that is none of them."""
    encoding = Encoding(tuple(Feature(column, name) for name in names), reading=reading, listed=(column,))
    where = encode(whole, encoding)
    return torch.where(where.any(1), where.argmax(1), -1)


def _unlisted(whole: pd.DataFrame, column: str, listed: Sequence[str], reading: Reading) -> Tensor:
    """Return which rows of a column have a category that is not listed, `[n]`.

    "other" stands for those, but not for all that a file holds: then its vocabulary is another one.
    """
    codes = _codes(whole, column, listed, reading)
    if OTHER not in listed:
        return codes < 0
    return (codes == listed.index(OTHER)) & torch.tensor((whole[column].astype(str) != OTHER).to_numpy())


def _outside(whole: pd.DataFrame, known: Range) -> Tensor:
    """Return which rows of a column have a number outside its range, `[n]`."""
    numbers = pd.to_numeric(whole[known.column]).to_numpy("float64")
    return torch.from_numpy((numbers < known.low) | (numbers > known.high))


def _no_number(column: pd.Series) -> Tensor:
    """Return which rows of a column hold no finite number, `[n]`; a date or a duration is none."""
    if declared_quantity(column):
        return torch.ones(len(column), dtype=torch.bool)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    return torch.from_numpy(~np.isfinite(numbers))


def _told(column: pd.Series, strange: Tensor, what: str) -> str:
    """Say that a column has strange values, and name them and their rows in the node's log; "" if it has none."""
    if not strange.any():
        return ""
    values = ", ".join(map(repr, column[strange.numpy()].astype(str).unique()[:10]))
    _log.warning("column %s has values that %s in %s of %s rows: %s", column.name, what, f"{int(strange.sum()):,}",
                 f"{len(column):,}", visible(values))
    return f"{column.name} has values that {what}"


def _refuse(differences: Sequence[str]) -> None:
    """Raise `SchemaMismatch` if there are differences."""
    found = [difference for difference in differences if difference]
    if found:
        raise SchemaMismatch(found)
