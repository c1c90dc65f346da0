"""Which columns of a table hold numbers, and with which decimal mark, from noisy counts: the first release of a fit.

A cell of a record is 0 or 1, another number, a number that only a dot before decimals explains, one that only a comma
explains, each of these three with a sign of per cent, a code with leading zeros, a date, a duration, a time of day, a
quantity that is written with a bound or a unit, another text (such as a band of ages), or empty: one of these, by
itself. The same release says how many records have each class. A record adds 1 to one count of each of m columns and to
that of its class, if it has one, and takes 1 from that of empty rows where it stands in place of one. These are m + 2
numbers, so it moves all of them by at most sqrt(m + 2) in Euclidean norm.

How many rows there are is public, so what most cells of a column are is read from the counts of its kinds that are
likeliest, once kinds that few columns have and noise may be are taken for none: no count is negative, and not more
cells are there than rows. Without that the noise of all counts hides what one of them says: of a table of 700 rows and
eight columns, .8 columns were taken for what they are not at epsilon 1.

A column of 0 and 1 has two bins, and nothing more has to be learned of it, however rare either is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from torch import Tensor

from fedfair.datasets.columns.convention import Decimal, Quantity, Reading
from fedfair.datasets.columns.quantities import quantity_of_text
from fedfair.datasets.columns.texts import is_band, way_of
from fedfair.datasets.columns.tidy import (
    cells,
    column_numbers,
    declared_quantity,
    is_text,
    own_numbers,
    tidied_column,
)
from fedfair.datasets.features.kept_table import by_value
from fedfair.datasets.files.chunks import Chunks
from fedfair.datasets.names import value_name
from fedfair.mechanisms.noise import NoiseName, add_noise
from fedfair.mechanisms.randomness import Source

_MOSTLY = 0.8  # of a column's values are numbers: then it holds numbers
_AT_LEAST = 0.5  # the same with noise that hides shares, as a column is rarely of two kinds
_HIDES = 6.0  # deviations of the noise, by which as many numbers may be fewer, but for the second
_CODE = r"[+-]?0\d+"  # a number does not start with a 0 before other digits
(_NUMBER, _BY_DOT, _BY_COMMA, _CODED, _TEXT, _SHARE, _DATE, _DURATION, _TIME, _MEASURE, _SWITCH, _SHARE_BY_DOT,
 _SHARE_BY_COMMA, _COUNTS) = range(14)
_QUANTITIES: dict[Quantity, int] = {"date": _DATE, "duration": _DURATION, "time": _TIME}
_RARE = [_SHARE, _DATE, _DURATION, _TIME, _MEASURE, _SWITCH, _SHARE_BY_DOT, _SHARE_BY_COMMA]
_DOTS, _COMMAS = [_BY_DOT, _SHARE_BY_DOT], [_BY_COMMA, _SHARE_BY_COMMA]
_LIKELY = 3.0  # deviations of the noise: kinds that few columns have count from there, so that their noise adds up less
_TOLD = 4.0  # deviations of the noise: as many codes are no accident of it
_FAINT = 0.03  # of a column's values: noise of a larger deviation might hide that some are neither 0 nor 1
_HIDDEN = 2.0  # deviations of the noise: as few values beside 0 and 1 may be none
_EITHER = r"([^.]*[^.\d])?[1-9]\d{0,2}(\.\d{3})+([^.\d][^.]*)?"  # a dot that may stand between thousands


class Kinds(NamedTuple):
    """What noisy counts tell.

    Attributes:
        numbers: Columns that hold plain numbers; all others, but for quantities, hold categories.
        decimal: Decimal mark of the table.
        unreadable: About how many rows have no value, as those that cannot be read; 0 if the noise may be all of it.
        quantities: Columns that hold dates, durations, times or percentages, which are numbers in a unit of theirs.
        measures: Columns of categories most of whose cells write a quantity, with a bound or a unit.
        strays: Columns of numbers or quantities of which some cells write another quantity, and count as missing.
        unread: Columns of numbers or quantities of which some cells are other texts, and count as missing.
        shares: Columns of which some numbers have a sign of per cent, and others none: the fewer of both count as
            missing.
        switches: Columns of numbers that are all 0 or 1, as far as the noise lets it be seen.
        evenness: How evenly records are divided among classes, from 0 to 1 (`evenness_of`); None if it was not asked.
        texts: Columns that a person takes for numbers, and of which the counts do not tell that they are.
    """

    numbers: tuple[str, ...]
    decimal: Decimal
    unreadable: int = 0
    quantities: tuple[tuple[str, Quantity], ...] = ()
    measures: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    evenness: float | None = None
    texts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class Counts(NamedTuple):
    """What the cells of a table are, counted exactly: what is not said to be public may not leave the machine.

    Attributes:
        records: Number of rows, which is public.
        cells: By column the cells of each kind, see above; then the number of rows without any value, and zeros:
            `[columns + 1, kinds]`.
        labels: Number of rows of each class, `[classes]`; which classes there are is public.
        names: Names of the classes.
        roles: A row for each label, group and site that occurs together; which there are is public.
    """

    records: int
    cells: Tensor
    labels: Tensor
    names: tuple[str, ...] = ()
    roles: pd.DataFrame = pd.DataFrame()

    @property
    def classes(self) -> int:
        """Number of classes, which is public."""
        return len(self.labels)

    @property
    def released(self) -> dict[str, Tensor]:
        """All that is released with noise."""
        return {"kinds": self.cells, "classes": self.labels}


def count(chunks: Chunks, columns: Sequence[str], reading: Reading, may_have_commas: bool, label: str,
          roles: Sequence[str] = ()) -> Counts:
    """Count the rows, the cells and the classes of a table.

    Args:
        chunks: The table.
        columns: Columns that nothing is known of.
        reading: How cells are read, with a dot before decimals.
        may_have_commas: Whether the decimal mark is to be found; else it is that of the reading.
        label: Column with the classes.
        roles: Columns of label, groups and sites, of which the values are public.
    """
    records, total = 0, torch.zeros(len(columns) + 1, _COUNTS, dtype=torch.float64)
    written: list[pd.Series] = []
    occurring = pd.DataFrame(columns=[*roles])
    for frame in chunks.frames():
        records += len(frame)
        written.append(frame[label].value_counts())
        occurring = pd.concat([occurring, frame[[*roles]]], ignore_index=True).drop_duplicates()
        total[-1, 0] += int((frame.isna() | (frame == "")).all(axis=1).sum())
        for row, name in enumerate(columns):
            total[row] += torch.tensor(_cells(frame[name], reading, may_have_commas), dtype=torch.float64)
    return Counts(records, total, *_by_class(pd.concat(written), label, reading), occurring)


def _by_class(written: pd.Series, label: str, reading: Reading) -> tuple[Tensor, tuple[str, ...]]:
    """Return the number of rows of each class, `[classes]`, by how often each label is written, and the classes' names;
    none is no class.
    """
    occurring = written[written > 0]
    codes, names = tidied_column(pd.Series(occurring.index, name=label), reading).factorize(sort=True)
    numbers = np.bincount(codes[codes >= 0], occurring.to_numpy()[codes >= 0], len(names))
    return torch.from_numpy(numbers.astype(float)), tuple(map(value_name, names))


def kinds(exact: Counts, columns: Sequence[str], reading: Reading, may_have_commas: bool, multiplier: float,
          noise: NoiseName, draws: Source) -> Kinds:
    """Return what noisy counts of cells and classes tell of a table.

    Args:
        exact: The counts; a row moves one number of each column, one of the classes, and that of empty rows, by 1.
        columns: Columns that nothing is known of, at least one.
        reading: How cells are read, with a dot before decimals.
        may_have_commas: Whether the decimal mark is to be found; else it is that of the reading.
        multiplier: Noise multiplier of the release.
        noise: How noise is sampled.
        draws: Where it comes from.
    """
    deviation = multiplier * math.sqrt(len(columns) + 2)
    noisy = add_noise(noise, exact.released, deviation, draws)
    *of_columns, empty = noisy["kinds"]
    counts = _without_absent(torch.stack(of_columns), deviation, may_have_commas)
    comma = may_have_commas and bool(counts[:, _COMMAS].sum() > counts[:, _DOTS].sum())
    by_mark, share_by_mark = _COMMAS if comma else _DOTS
    of_plain, of_shares, of_quantities = [_NUMBER, by_mark], [_SHARE, share_by_mark], [*_QUANTITIES.values()]
    of_numbers = [*of_plain, *of_shares]
    beyond, others = counts[:, of_numbers].sum(1), counts[:, [*of_quantities, _MEASURE]].sum(1)
    likely, told = likeliest(counts, exact.records), _TOLD * deviation
    numbers, values = likely[:, [*of_numbers, _SWITCH]].sum(1), likely.sum(1)
    most = (_MOSTLY * values - _HIDES * deviation).maximum(_AT_LEAST * values)
    are_numbers = (numbers > most) & (counts[:, _CODED] <= told)
    of_quantity, places = likely[:, of_quantities].max(1)
    are_quantities = (of_quantity > most) & (of_quantity > 0) & ~are_numbers
    names = [[*_QUANTITIES][place] for place in places.tolist()]
    own = counts[:, of_quantities].gather(1, places[:, None]).squeeze(1)
    strays = others - torch.where(are_quantities, own, 0.0)
    unread = (counts[:, [_TEXT, *(_DOTS if comma else _COMMAS)]] > told).any(1)
    read = are_numbers | are_quantities
    of_measures = numbers + likely[:, [*of_quantities, _MEASURE]].sum(1) > most
    plain, shares = counts[:, [*of_plain, _SWITCH]].sum(1), counts[:, of_shares].sum(1)
    are_shares = are_numbers & (shares > plain)

    def named(chosen: Tensor) -> tuple[str, ...]:
        """Return the columns that are chosen, `[columns]`."""
        return tuple(name for name, is_chosen in zip(columns, chosen, strict=True) if is_chosen)

    of_unit = tuple(pair for pair, is_one in zip(zip(columns, names, strict=True), are_quantities, strict=True)
                    if is_one)
    of_hundred: tuple[tuple[str, Quantity], ...] = tuple((name, "percentage") for name in named(are_shares))
    return Kinds(
        named(are_numbers & ~are_shares), "," if comma else reading.decimal,
        round(float(empty[0])) if empty[0] > told else 0, (*of_unit, *of_hundred),
        measures=named(~read & of_measures & (others > told)), strays=named(read & (strays > told)),
        shares=named(are_numbers & (shares > told) & (plain > told)),
        switches=named(are_numbers & (beyond <= _HIDDEN * deviation) & (deviation <= _FAINT * values)),
        evenness=evenness_of(noisy["classes"]), unread=named(read & unread))


def _without_absent(counts: Tensor, deviation: float, may_have_commas: bool) -> Tensor:
    """Return noisy counts, 0 where noise alone may be the count of a rare kind, or nothing was counted."""
    absent = torch.zeros_like(counts, dtype=torch.bool)
    absent[:, _RARE] = counts[:, _RARE] <= _LIKELY * deviation
    if not may_have_commas:
        absent[:, [*_DOTS, *_COMMAS]] = True
    return counts.masked_fill(absent, 0.0)


def likeliest(counts: Tensor, records: int) -> Tensor:
    """Return the likeliest numbers of cells of each kind: the nearest to noisy ones that a column can have.

    None is negative, and together they are not more than the records. All that are left are less by as much
    (projection on a simplex: Duchi et al. 2008, "Efficient Projections onto the l1-Ball", figure 1).

    Args:
        counts: Noisy numbers, `[columns, kinds]`; a kind that noise alone may be can have been taken for none.
        records: Number of rows, which is public.

    Examples:
        >>> likeliest(torch.tensor([[90.0, 40.0, -20.0]]), 100).tolist(), likeliest(torch.tensor([[9.0, -2.0]]), 100)
        ([[75.0, 25.0, 0.0]], tensor([[9., 0.]]))
    """
    falling = counts.sort(1, descending=True).values
    above = (falling.cumsum(1) - records) / torch.arange(1, counts.shape[1] + 1)
    left = (falling > above).sum(1, keepdim=True).clamp(min=1)
    return (counts - above.gather(1, left - 1).clamp(min=0)).clamp(min=0)


def evenness_of(classes: Tensor) -> float:
    """Return how evenly records are divided among C classes: C / (C - 1) times the sum of p (1 - p) over shares p.

    It is 1 where all have as many, and 0 where one has all; of two classes it is 4 p (1 - p) of either share.

    Args:
        classes: Noisy number of records of each class, `[C]`, at least two.

    Examples:
        >>> evenness_of(torch.tensor([50.0, 50.0])), round(evenness_of(torch.tensor([10.0, 90.0])), 2)
        (1.0, 0.36)
    """
    known = classes.clamp(min=0.0)
    shares = known / known.sum().clamp(min=1.0)
    return float((shares * (1 - shares)).sum()) * len(classes) / max(len(classes) - 1, 1)


def _cells(column: pd.Series, reading: Reading, may_have_commas: bool) -> tuple[int, ...]:
    """Count the cells of each kind."""
    if not is_text(column):
        own = declared_quantity(column)
        is_number = is_numeric_dtype(column) and not is_bool_dtype(column)
        kind = _QUANTITIES[own] if own else _NUMBER if is_number else _TEXT
        switched = int(column.isin([0, 1]).sum()) if kind == _NUMBER else 0
        own_counts = {kind: int(column.notna().sum()) - switched, _SWITCH: switched}
        return tuple(own_counts.get(place, 0) for place in range(_COUNTS))
    numbers = switches = pd.Series(False, column.index)
    if column.dtype == object:
        own_values = own_numbers(column)
        numbers = own_values.notna() & ~column.map(lambda cell: isinstance(cell, bool))
        switches = numbers & own_values.isin([0, 1])
    places, found = by_value(column[~numbers], lambda texts: _kinds_of(texts, reading, may_have_commas))
    counts = np.bincount(found.to_numpy()[places], minlength=_COUNTS + 1)[:_COUNTS]
    counts[_NUMBER] += int((numbers & ~switches).sum())
    counts[_SWITCH] += int(switches.sum())
    return tuple(counts.tolist())


def _kinds_of(texts: pd.Series, reading: Reading, may_have_commas: bool) -> pd.Series:
    """Return what each of some texts is: the place of its count, and the next one for an empty text."""
    text, name = cells(texts, reading), str(texts.name)
    assert text is not None
    known, coded = text.notna().to_numpy(), _fits(text, _CODE)
    values = column_numbers(text, name, reading)
    numbers, shares = values.notna().to_numpy() & ~coded, _shares(text, name, reading)
    switches = numbers & values.isin([0, 1]).to_numpy()
    found = np.select([~known, switches, numbers, coded, shares], [_COUNTS, _SWITCH, _NUMBER, _CODED, _SHARE], _TEXT)
    if may_have_commas:
        dotted = text.str.contains(".", regex=False).fillna(False).to_numpy(bool) & ~_fits(text, _EITHER)
        found[dotted & numbers], found[dotted & shares] = _DOTS
        by_comma = reading._replace(decimal=",")
        others = text.str.contains(",", regex=False).fillna(False).to_numpy(bool) & (found == _TEXT)
        found[others & column_numbers(text, name, by_comma).notna().to_numpy()] = _BY_COMMA
        found[others & _shares(text, name, by_comma)] = _SHARE_BY_COMMA
    others = np.flatnonzero(found == _TEXT)
    found[others] = [_kind_of_text(each) for each in text.iloc[others]]
    return pd.Series(found)


def _shares(text: pd.Series, name: str, reading: Reading) -> NDArray[np.bool_]:
    """Return which texts are numbers with a sign of per cent, `[n]`."""
    return column_numbers(text, name, reading._replace(quantities=((name, "percentage"),))).notna().to_numpy()


def _kind_of_text(text: str) -> int:
    """Return what a text is that is no number: the place of its count."""
    quantity: Any = quantity_of_text(text)
    return _QUANTITIES[quantity] if quantity else _MEASURE if way_of(text) and not is_band(text) else _TEXT


def _fits(text: pd.Series, pattern: str) -> NDArray[np.bool_]:
    """Return which texts a pattern describes as a whole, `[n]`."""
    return text.str.fullmatch(pattern).fillna(False).to_numpy(bool)
