"""Features of a table that are made when they are needed; until then its cells are kept, a few bytes each.

A record has a feature for every category and every bin, of which few are not 0. `Cells` stands where the tensor of all
features would (`fedfair.datasets.features.lazy_rows`), and some of its columns are a plain tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding, Feature, places_of, rows_of
from fedfair.datasets.features.lazy_rows import LazyRows
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.schema import position

_PORTION = 8192  # records whose features are made together


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        values: Its numbers, NaN where one is missing, `[n]`, which may be in a file; or positions in `categories`.
        categories: Its categories; None for numbers.
    """

    values: Tensor
    categories: tuple[str, ...] | None = None

    def of_rows(self, chosen: Tensor) -> Column:
        """Return the column of some records.

        Args:
            chosen: Their rows, `[m]`.
        """
        values = self.values  # which may be asked for where indexing does not know of rows that are in a file
        return self._replace(values=values.rows(chosen) if isinstance(values, LazyRows) else values[chosen])

    def numbers(self) -> Tensor:
        """Return the numbers, `[n]`, in memory, which its categories write if it has some."""
        if self.categories is None:
            return self.values.made() if isinstance(self.values, LazyRows) else self.values
        return torch.tensor([float(name) for name in self.categories], dtype=torch.float64)[self.values.int()]


class Held:
    """Records of a table, and how features are made of them: what their parts share.

    Args:
        columns: The table's columns by name, all of as many values.
        encoding: How they become features.
        rows: Places of the records in the table, `[n]`; None for all, in their order.
    """

    def __init__(self, columns: Mapping[str, Column], encoding: Encoding, rows: Tensor | None = None) -> None:
        self.columns, self.encoding, self.rows = columns, encoding, rows

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values) if self.rows is None else len(self.rows)

    def column(self, name: str, places: Tensor | None = None) -> Column:
        """Return the values of a column, `[n]`, or those of the records at `places`."""
        column, rows = self.columns[name], self.chosen(places)
        return column if rows is None else column.of_rows(rows)

    def chosen(self, places: Tensor | None) -> Tensor | None:
        """Return where in the table the records at `places` lie, or all; None for the whole table."""
        return self.rows if places is None else places if self.rows is None else self.rows[places]

    @cached_property
    def ones(self) -> Tensor | None:
        """Where each record's ones are, `[n, columns]` (`fedfair.datasets.features.encoding`); None without such."""
        return places_of(lambda name: _values(self.column(name), name, self.encoding), self.encoding)


class Cells(LazyRows):
    """The features of some records, `[n, features]`, as cells and how features are made of them."""

    held: Held

    @classmethod
    def of(cls, held: Held, dtype: torch.dtype = torch.float64, places: Tensor | None = None) -> Self:
        """Return the features of some records.

        Args:
            held: Records, which others share.
            dtype: Type of the features.
            places: Places of these records among them, `[n]`; None for all, in their order.
        """
        records = len(held) if places is None else len(places)
        width = len(held.encoding.features) + (held.encoding.bounding is not None)
        made: Self = Tensor._make_wrapper_subclass(cls, (records, width), dtype=dtype)
        made.held, made.places = held, places
        return made

    @property
    def encoding(self) -> Encoding:
        """How columns become features."""
        return self.held.encoding

    def column(self, name: str) -> Column:
        """Return the records' values of a column, `[n]`."""
        return self.held.column(name, self.places)

    def ones(self) -> Tensor | None:
        """Return where the records' ones are, `[n, columns]` (`fedfair.datasets.features.encoding`), or None."""
        ones = self.held.ones
        return ones if ones is None or self.places is None else ones[self.places]

    def at(self, places: Tensor) -> Self:
        """See `LazyRows`."""
        return self.of(self.held, self.dtype, places)

    def encoded(self, encoding: Encoding) -> Cells:
        """Return the same records with other features."""
        return Cells.of(Held(self.held.columns, encoding, self.held.chosen(self.places)), self.dtype)

    def made(self) -> Tensor:
        """See `LazyRows`."""
        made = torch.empty(len(self), self.shape[1], dtype=self.dtype)
        for first in range(0, len(self), _PORTION):
            part = slice(first, first + _PORTION)
            made[part] = _rows(self.rows(part))
        return made

    def without_making(self, func: Callable[..., Any], *index: Any) -> Tensor | None:
        """See `LazyRows`: some records, some features that need no others, or the records in another type."""
        if func is Tensor.to and len(index) == 1 and isinstance(index[0], torch.dtype):
            return Cells.of(self.held, index[0], self.places)
        wanted = index[0] if func is Tensor.__getitem__ and isinstance(index[0], tuple) else ()
        if len(wanted) == 2 and wanted[0] == slice(None) and isinstance(wanted[1], int) and (
                self.encoding.bounding is None):
            return _features(self, [self.encoding.features[wanted[1]]])[:, 0]
        return super().without_making(func, *index)


def with_features(data: GroupedDataset, change: Callable[[GroupedDataset], GroupedDataset]) -> GroupedDataset:
    """Change the features of records, by what is known of the columns alone where the records are cells.

    Args:
        data: Records.
        change: Gives the features of each record, which may depend on that record and on public numbers.
    """
    if not isinstance(data.x, Cells):
        return change(data)
    none = data.take(slice(0, 0))
    encoding = change(replace(none, x=none.x.clone())).encoding
    return replace(data, x=data.x.encoded(encoding), encoding=encoding)


def category_counts(data: GroupedDataset, column: str) -> dict[str, float]:
    """Return the number of records of each category of a column that occurs.

    Args:
        data: Records with a feature for every category of the column.
        column: Name of the column.
    """
    places = [place for place, feature in enumerate(data.encoding.features) if feature.column == column]
    names = [str(data.encoding.features[place].category) for place in places]
    if isinstance(data.x, Cells):
        held = data.x.column(column)
        by_name = dict(zip(held.categories or (), torch.bincount(
            held.values, minlength=len(held.categories or ())).double().tolist(), strict=True))
        totals = [by_name[name] for name in names]
    else:
        totals = data.x[:, places].double().sum(0).tolist()
    return {name: total for name, total in zip(names, totals, strict=True) if total}


def _rows(cells: Cells) -> Tensor:
    """Return the features of records, bounded if all are, `[n, features]`."""
    ones, encoding = cells.ones(), cells.encoding
    if ones is None:
        return _features(cells, encoding.features)
    return rows_of(ones, len(encoding.features), encoding.bounding).to(cells.dtype)


def _features(cells: Cells, features: Sequence[Feature]) -> Tensor:
    """Return some features of records one by one, bounded if all are, `[n, features]`."""
    encoding, values, known = cells.encoding, dict[str, Tensor](), dict[str, dict[str, int]]()
    made = []
    for feature in features:
        name = feature.column
        if name not in values:
            known[name] = {category: place for place, category in enumerate(encoding.categories(name))}
            values[name] = _values(cells.column(name), name, encoding)
        if feature.category is None:
            made.append(feature.of(values[name]))
        else:
            made.append((values[name] == known[name][feature.category]).double())
    together = torch.stack(made, 1)
    return (together if encoding.bounding is None else encoding.bounding.of(together)).to(cells.dtype)


def _values(column: Column, name: str, encoding: Encoding) -> Tensor:
    """Return the numbers of a column, or the place of each record's category among those that are known."""
    known = encoding.categories(name)
    if not known:
        return column.numbers()
    return _places(column.categories or (), known, name in encoding.listed)[column.values.int()]


@lru_cache(maxsize=64)
def _places(categories: tuple[str, ...], known: tuple[str, ...], is_listed: bool) -> Tensor:
    """Return the place of each category among those that are known, `[categories]`; -1 for one that is none of them."""
    exact = {category: place for place, category in enumerate(known)}
    return torch.tensor([exact[name] if name in exact else position(name, known) if is_listed else -1
                         for name in categories])
