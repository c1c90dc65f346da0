"""From a table, or a file with one, to a `GroupedDataset`: one column is the label, one the group."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedfair.datasets.columns.convention import PLAIN, Asked, Reading, as_declared, as_read, in_bands, with_bands
from fedfair.datasets.columns.kinds import LEFT_OUT, problems, understand
from fedfair.datasets.columns.tidy import (
    cells,
    common_quantity,
    declared_quantity,
    listed,
    reading_as_asked,
    reading_of,
    reading_of_declared,
    tidied,
    whole_numbers,
    with_columns,
)
from fedfair.datasets.columns.written_numbers import common_sign
from fedfair.datasets.features.encoder import cells_of, encode, kept, learn
from fedfair.datasets.features.features import leave_out
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.files.chunks import Chunks, chunks_of, one_chunk, read_files, read_rows
from fedfair.datasets.grouped import GroupedDataset, weights_of
from fedfair.datasets.names import toml_key, value_name, visible
from fedfair.datasets.split import Missing, numbers_of_names, numbers_of_rows
from fedfair.plugins.registry import unknown

_log = logging.getLogger(__name__)
_AS_ASKED = Asked()
_NONE: Mapping[str, Tensor] = MappingProxyType({})
_MOSTLY = 0.3  # of the rows that a column lacks: dropping them would leave too few


class MissingValues(ValueError):
    """A table has missing values, which are to be refused.

    Args:
        message: What to do about them.
        gaps: How many there are, by column and in all rows.
    """

    def __init__(self, message: str, gaps: str) -> None:
        super().__init__(message)
        self.gaps = gaps


def from_frame(frame: pd.DataFrame, label: str, group: str, numeric: Sequence[str] = (), reading: Reading = PLAIN,
               numbers: Mapping[str, Tensor] = _NONE) -> GroupedDataset:
    """Encode a complete table; see `features.encoder.learn`. All columns but the label become features.

    Those of the columns `numeric` that were read as numbers already are among the `numbers`, each `[n]`, not in the
    table. Labels and groups are numbered in sorted order; a group with bands in rising order.
    Raises `ValueError` for missing or infinite values, an unknown column, or a label or group with a single value.
    """
    for column in (label, group, *numeric):
        if column not in frame and column not in numbers:
            raise unknown("column", column, map(str, frame.columns))
    may_miss = {*numeric} if reading.keeps_missing else set()
    missing = [str(c) for c in frame.columns[frame.isna().any()] if c not in may_miss]
    if missing:
        raise ValueError(f"the table has missing values in {', '.join(missing)}: fill them or drop those rows")
    infinite = [column for column in numeric if column not in may_miss
                and not np.isfinite(frame[column].to_numpy(dtype="float64")).all()]
    if infinite:
        raise ValueError(f"the table has infinite values in {', '.join(infinite)}: correct or drop those rows")
    bands = dict(reading.bands)
    labels = codes(frame[label], label)
    groups = codes(in_bands(frame[group], bands[group]) if group in bands else frame[group], group)
    inputs = frame.drop(columns=label)
    if inputs.columns.empty and not numbers:
        raise ValueError(f"the table has no column but the label {label!r}: there is nothing to learn from")
    encoding = learn(inputs, numeric, reading)
    return GroupedDataset(
        x=(cells_of(inputs.reset_index(drop=True), encoding, numbers) if reading.keeps_missing else
           encode(inputs, encoding)),
        y=torch.tensor(labels.codes.astype("int64")),
        group=torch.tensor(groups.codes.astype("int64")),
        names=tuple(map(value_name, groups.categories)),
        classes=len(labels.categories),
        labels=tuple(map(value_name, labels.categories)),
        encoding=encoding,
    )


def codes(column: pd.Series, name: str) -> pd.Categorical:
    """Return the values of a label or group, numbered in sorted order; raise `ValueError` for fewer than two."""
    values = pd.Categorical(column)
    if not len(values.categories) or not any(map(str, values.categories)):
        raise ValueError(f"column {name!r} has no value in any row that can be read: check that the first line names "
                         "every column, and that rows have as many values")
    if len(values.categories) < 2:
        raise ValueError(f"column {name!r} has the single value {', '.join(map(str, values.categories))!r}: there must "
                         "be at least two to compare")
    return values


def from_table(frame: pd.DataFrame, label: str, group: str, missing: Missing = "refuse", participant: str | None = None,
               without: Sequence[str] = (), numbers: Sequence[str] | None = None, asked: Asked = _AS_ASKED,
               separator: str | None = None, weight: str | None = None, site: str | None = None) -> GroupedDataset:
    """Tidy and encode a raw table, whose columns are taken as `fedfair.datasets.columns.kinds.understand` takes them.

    Columns with a single value and row numbers are left out, and so, with `missing` = "drop", are rows with missing
    values; the logger warns of both. The column `participant`, if given, names the person of each record, and the
    column `weight` holds the factor of its loss, see `fedfair.datasets.grouped`; the column `site` names its site. None
    of these is a feature. Columns `without` are not read; see `leave_out`. With `numbers`, the columns that hold
    numbers, all others hold categories, and none is left out, whatever their values. The other arguments are those of
    `fedfair.datasets.columns.tidy.reading_of`.
    Raises `ValueError` for missing values that may not be dropped, for columns that cannot be used, and as
    `from_frame`, `reading_of` and `leave_out` do.
    """
    if missing == "keep":
        return from_chunks(one_chunk(frame, separator), label, group, participant, without, numbers, asked, weight,
                           site)
    roles = (label, group, participant)
    asked = asked if numbers is not None else replace(asked, categorical=(*asked.categorical, *listed(frame)))
    unread = _unread(frame.columns, without, roles, weight, site, asked)
    raw = frame.drop(columns=unread)
    asked = asked if numbers is None else as_declared(asked, [*map(str, raw)], numbers, (*roles, weight, site))
    reading = (reading_of(raw, asked, separator, [*roles, site]) if numbers is None else
               reading_of_declared(raw, asked, separator))
    reading = with_bands(reading, asked, group)
    if numbers is None:
        whole = _complete_or_all_wrong(tidied(raw, reading), missing, roles, asked, reading)
    else:
        whole = complete(tidied(raw, reading), missing, roles)
        alone = [participant] if participant not in (None, label, group) else []
        whole = with_columns(whole, {name: kept(raw.loc[whole.index, name], PLAIN) for name in alone})
    features = whole.drop(columns=[*filter(None, (weight, site))])
    kinds = _kinds(features, roles, asked, reading) if numbers is None else (declared(features, numbers, roles), [])
    data = _with_features(features, kinds, roles, asked, reading)
    data = _with_roles(leave_out(data, [name for name in without if name not in unread]), whole, participant, weight,
                       site, asked)
    own = [features[name] for name in features if name != participant]
    return _from_rows(data, features.index, own, raw.loc[features.index, participant] if participant else None)


def from_chunks(chunks: Chunks, label: str, group: str, participant: str | None = None, without: Sequence[str] = (),
                numbers: Sequence[str] | None = None, asked: Asked = _AS_ASKED, weight: str | None = None,
                site: str | None = None) -> GroupedDataset:
    """Encode a table chunk by chunk, as `from_table` does with `missing` = "keep".

    Raises what `from_table` raises.
    """
    roles = (label, group, participant)
    unread = _unread(chunks.names, without, roles, weight, site, asked)
    read = [name for name in chunks.names if name not in unread]
    asked = asked if numbers is None else as_declared(asked, read, numbers, (*roles, weight, site))
    reading = with_bands(reading_as_asked(asked), asked, group)
    plain = read if numbers is None else [*filter(None, (*roles, weight, site))]
    apart = [name for name in (weight, site) if name is not None]
    kept_rows = kept_table(chunks, reading, label, numbers or (), plain, unread, [*filter(None, roles), *apart])
    whole = kept_rows.frame
    named = [name for name in dict.fromkeys((label, group)) if name not in dict(reading.bands)]
    wrong = problems(understand(whole[named], label, group, None, asked))
    if wrong:
        raise ValueError(wrong)
    features = whole.drop(columns=apart)
    own = [name for name in read if name not in apart]
    kinds = _kinds(features, roles, asked, reading) if numbers is None else (
        [name for name in own if name in numbers and name not in roles], [])
    data = _with_features(features, kinds, roles, asked, reading, kept_rows.numbers)
    data = _with_roles(leave_out(data, [name for name in without if name not in unread]), whole, participant, weight,
                       site, asked)
    data = _from_rows(data, whole.index, kept_rows.columns(name for name in own if name != participant),
                      None if participant is None else whole[participant])
    return replace(data, rows=kept_rows.rows)


def _from_rows(data: GroupedDataset, places: pd.Index, columns: Iterable[pd.Series], people: pd.Series | None
               ) -> GroupedDataset:
    """Return records with what deals them to parts: place, person, as its name is written, and content of `columns`."""
    return replace(data, records=torch.tensor(places.to_numpy("int64")), content=numbers_of_rows(columns),
                   person=data.person if people is None else numbers_of_names(kept(people, PLAIN)))


def _unread(columns: Collection[str], without: Sequence[str], roles: Sequence[str | None], weight: str | None,
            site: str | None, asked: Asked) -> list[str]:
    """Return the columns that need not be read; raise `ValueError` if one with a role is absent, or has two."""
    refuse_two_roles(weight, roles)
    for column in filter(None, (*roles, weight, site, *asked.categorical, *asked.answers)):
        if column not in columns:
            raise unknown("column", column, map(str, columns))
    return features_alone(without, columns, (*roles, weight, site))


def _with_features(whole: pd.DataFrame, kinds: tuple[list[str], list[str]], roles: tuple[str, str, str | None],
                   asked: Asked, reading: Reading, numbers: Mapping[str, Tensor] = _NONE) -> GroupedDataset:
    """Encode the columns of label, group and features, of which some hold numbers, and some have nothing to learn."""
    label, group, participant = roles
    numeric, left_out = kinds
    features = whole.drop(columns=[*left_out, *([participant] if participant not in (None, label, group) else [])])
    names = {label, group, *asked.categorical} & {*features} - {*numeric}
    read = with_columns(features, {name: whole_numbers(whole[name]) for name in names})
    return from_frame(read, label, group, numeric, reading, numbers)


def _with_roles(data: GroupedDataset, whole: pd.DataFrame, participant: str | None, weight: str | None,
                site: str | None, asked: Asked) -> GroupedDataset:
    """Return the records with their weights, sites and participants, where columns name them."""
    if weight is not None:
        data = replace(data, weight=weights_of(whole[weight]))
    if site is not None:
        places = _sites(whole[site], asked)
        data = replace(data, site=torch.tensor(places.codes.astype("int64")),
                       sites=tuple(map(value_name, places.categories)))
    if participant is None:
        return data
    return replace(data, participant=torch.tensor(pd.Categorical(whole[participant]).codes.astype("int64")))


def _sites(column: pd.Series, asked: Asked) -> pd.Categorical:
    """Return the site of each row, numbered in sorted order; raise `ValueError` for what cannot be sites."""
    wrong = problems(understand(column.to_frame(), "", str(column.name), None, asked))
    if wrong:
        raise ValueError(wrong)
    return codes(whole_numbers(column), str(column.name))


def _complete_or_all_wrong(tidy: pd.DataFrame, missing: Missing, roles: tuple[str, str, str | None], asked: Asked,
                           reading: Reading) -> pd.DataFrame:
    """Return the rows of `complete`; raise `ValueError` that also says what else is wrong with the columns."""
    try:
        return complete(tidy, missing, roles)
    except ValueError as error:
        wrong = problems(understand(shown(tidy, reading), *roles, as_read(asked, reading)))
        if not wrong:
            raise
        raise ValueError(f"{wrong}; {error}") from None


def _kinds(whole: pd.DataFrame, roles: tuple[str, str, str | None], asked: Asked, reading: Reading
           ) -> tuple[list[str], list[str]]:
    """Return the columns of numbers, and those with nothing to learn from, as their values tell.

    Raises `ValueError` for columns that cannot be used.
    """
    columns = understand(shown(whole, reading), *roles, as_read(asked, reading))
    if problems(columns):
        raise ValueError(problems(columns))
    left_out = [column.name for column in columns if column.kind in LEFT_OUT]
    if left_out:
        _log.warning("left out, with nothing to learn from: column %s", visible(", ".join(left_out)))
    bands = dict(reading.bands)
    return [column.name for column in columns if column.kind == "number" or column.name in bands], left_out


def declared(whole: pd.DataFrame, numbers: Sequence[str], roles: Sequence[str | None]) -> list[str]:
    """Return the columns that are declared to hold numbers; raise `ValueError` if one of them does not."""
    columns = [str(name) for name in whole if name in numbers and name not in roles]
    for name in columns:
        column = whole[name]  # of dates pandas has numbers, of a unit that differs from file to file
        strays = column if declared_quantity(column) else column[pd.to_numeric(column, errors="coerce").isna()]
        if len(strays):
            raise ValueError(f"column {name!r} has {str(strays.iloc[0])!r} in row {strays.index[0] + 1}, where the "
                             "settings say that it holds numbers: correct it, or list the column's categories"
                             f"{_as_quantity(name, whole[name])}")
    return columns


def _as_quantity(name: str, column: pd.Series) -> str:
    """Return the setting by which a column of dates, durations, times or percentages is a number; "" for another."""
    text = cells(column)
    quantity = (declared_quantity(column) if text is None else
                "percentage" if common_sign(text) in ("%", "‰") else common_quantity(text))
    return f', or give quantities = {{ {toml_key(name)} = "{quantity}" }}' if quantity else ""


def shown(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return a tidied table in which protected numbers are in their bands."""
    return with_columns(frame, {name: in_bands(frame[name], ends).astype("string") for name, ends in reading.bands
                                if name in frame})


def group_names(frame: pd.DataFrame, columns: Sequence[str], reading: Reading = PLAIN) -> list[str | None]:
    """Name each row's group, `[n]`, by its values in some columns; see `fedfair.datasets.grouped.crossed`.

    A row in which one of them is missing has no group, None.
    Raises `ValueError` if a column is absent.
    """
    for name in columns:
        if name not in frame:
            raise unknown("column", name, map(str, frame.columns))
    tidy = shown(tidied(frame[list(columns)], reading), reading)
    present = tidy.notna().all(axis=1)
    texts = [whole_numbers(tidy.loc[present, name]).map(value_name) for name in columns]
    named = iter([" & ".join(values) for values in zip(*texts, strict=True)])
    return [next(named) if there else None for there in present]


def refuse_two_roles(weight: str | None, roles: Sequence[str | None]) -> None:
    """Raise `ValueError` if the column of weights is that of label, group or participant too."""
    if weight is not None and weight in roles:
        raise ValueError(f"record_weight is {weight!r}, which is the column of label, group or participant: name a "
                         "column that holds weights alone")


def features_alone(without: Sequence[str], columns: Container[str], roles: Sequence[str | None]) -> list[str]:
    """Return those of `without` that are columns and have no role: label, group or participant."""
    return [name for name in without if name in columns and name not in roles]


def from_csv(path: Path, label: str, group: str, missing: Missing = "refuse", participant: str | None = None,
             without: Sequence[str] = (), numbers: Sequence[str] | None = None, asked: Asked = _AS_ASKED,
             weight: str | None = None, site: str | None = None) -> GroupedDataset:
    """Read and encode a file of the user's, of any format that `read_files` knows; see `from_table`.

    Raises what `read_files` and `from_table` raise.
    """
    if missing == "keep":
        return from_chunks(chunks_of(path, asked), label, group, participant, without, numbers, asked, weight, site)
    file = read_files(path, asked) if numbers is None else read_rows(path, asked)
    return from_table(file.frame, label, group, missing, participant, without, numbers, asked, file.separator, weight,
                      site)


def complete(frame: pd.DataFrame, missing: Missing, roles: Sequence[str | None] = ()) -> pd.DataFrame:
    """Return the rows without missing values; columns with no value at all are not looked at.

    Columns with `roles` cannot be left out. Raises `ValueError` if rows may not be dropped, or if no row is complete.
    """
    counts = frame.loc[:, frame.notna().any()].isna().sum()
    counts = counts[counts > 0]
    if counts.empty:
        return frame
    lost = frame[counts.index].isna().any(axis=1)
    gaps = (f"missing values in {', '.join(f'{name} ({count:,})' for name, count in counts.items())}, in "
            f"{lost.sum():,} of {len(frame):,} rows")
    if missing == "refuse":
        most = [str(name) for name, count in counts.items() if count > _MOSTLY * len(frame) and name not in roles]
        rather = f"; rather leave out columns that lack many, with without = {json.dumps(most)}" if most else ""
        raise MissingValues(f'the table has {gaps}: fill them, or leave those rows out with missing = "drop"{rather}; '
                            "in a file, cells with NA, None or null count as missing: name a column where that is an "
                            'answer, for example answers = ["country"]', gaps)
    if lost.all():
        raise ValueError(f"the table has {gaps}: no row is complete; fill them, or leave those columns out by without")
    _log.warning("left out: rows with %s", visible(gaps))
    return frame[~lost]
